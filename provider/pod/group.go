// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// A cluster may be shown as several virtual nodes: one for each group of its nodes,
// and its own. What is known of the pods of all of them is one: they travel in one
// source, their names are distinct, and only when each has been listed is anything
// said of absence. Of a cluster that is one node there are no rolls.

// groupNode is what is known of the pods of a group's node.
type groupNode struct {
	// listed: they have been complete.
	listed bool
	pods   int
}

// OnIdle has f called when a group's node may have become idle. f must not block nor
// call back; it is set before the first Watch.
func (c *Controller) OnIdle(f func()) { c.onIdle = f }

// ExpectNode keeps anything from being said of absence until the pods of a node have been
// listed, too, as those of a cluster's own have to be from the start. Of a group's it is
// called before the cluster's own node is watched.
func (c *Controller) ExpectNode(name string) {
	cluster, _ := wire.ParseNodeName(name)
	c.deleteIfUnused(c.updateCluster(cluster, func(n *clusterState) { n.expectNode(name) }))
}

// RemoveNode is the inverse of Expect, for a node that is no more, or somebody else's,
// and not watched. Of a cluster of which no node is left nothing is said.
func (c *Controller) RemoveNode(name string) {
	cluster, group := wire.ParseNodeName(name)
	n := c.getCluster(cluster)
	if group == "" {
		n = c.updateCluster(cluster, func(n *clusterState) { n.ownNodeForeign = true })
	}
	if n == nil {
		return
	}
	n.mu.Lock()
	delete(n.groupNodes, name)
	c.completeIfListed(n)
	n.mu.Unlock()
	c.deleteIfUnused(n)
}

// IsIdle reports whether no pod is bound to a group's node. Before that is known, it is
// not.
func (c *Controller) IsIdle(name string) bool {
	cluster, _ := wire.ParseNodeName(name)
	n := c.getCluster(cluster)
	if n == nil {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r, ok := n.groupNodes[name]
	return !ok || r.listed && r.pods == 0
}

// expectNode makes a node one that has to be listed; n.mu is held.
func (n *clusterState) expectNode(name string) {
	if name == n.name {
		n.ownNodeForeign = false
		return
	}
	if _, ok := n.groupNodes[name]; ok {
		return
	}
	if n.groupNodes == nil {
		n.groupNodes = map[string]*groupNode{}
	}
	r := &groupNode{}
	for _, p := range n.pods {
		if p.pod.Spec.NodeName == name {
			r.pods++
		}
	}
	n.groupNodes[name] = r
}

// markListed notes that the pods of one node are known; n.mu is held.
func (c *Controller) markListed(n *clusterState, name string) {
	if name == n.name {
		n.ownNodeListed = true
	} else if r, ok := n.groupNodes[name]; ok {
		r.listed = true
		c.notifyIfIdle(r)
	}
	c.completeIfListed(n)
}

// completeIfListed says what is absent, if the pods of every node of the cluster are known;
// n.mu is held. What is said stays said: the node of a group that comes later has no
// pods of before.
func (c *Controller) completeIfListed(n *clusterState) {
	if n.forgotten || !n.allNodesListed() {
		return
	}
	c.config.Sync.Source(n.name, wire.KindPod).Complete()
	c.config.Sync.Source(n.name, wire.KindPodForced).Complete()
	c.objects.MarkListed(n.subscriber)
	c.tokens.completeTokens(n)
	if !n.wasComplete {
		n.wasComplete = true
		c.restartResponseTimer(n) // only now is the agent asked what its pods are like
	}
}

func (n *clusterState) allNodesListed() bool {
	for _, r := range n.groupNodes {
		if !r.listed {
			return false
		}
	}
	return n.ownNodeListed || n.ownNodeForeign && len(n.groupNodes) > 0
}

// countPod counts a pod of a group's node in or out; n.mu is held.
func (c *Controller) countPod(n *clusterState, pod *corev1.Pod, change int) {
	if r, ok := n.groupNodes[pod.Spec.NodeName]; ok {
		r.pods += change
		c.notifyIfIdle(r)
	}
}

func (c *Controller) notifyIfIdle(r *groupNode) {
	if r.listed && r.pods == 0 && c.onIdle != nil {
		c.onIdle()
	}
}

// isStale reports whether a pod is one of an earlier life of its name, on another node
// of the cluster: the watches of two nodes have no order.
func (p *podState) isStale(pod *corev1.Pod) bool {
	return p.pod.UID != pod.UID && p.pod.Spec.NodeName != pod.Spec.NodeName && isOlder(pod, p.pod)
}
