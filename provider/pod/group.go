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

// roll is what is known of the pods of a group's node.
type roll struct {
	// listed: they have been complete.
	listed bool
	pods   int
}

// OnIdle has f called when a group's node may have become idle. f must not block nor
// call back; it is set before the first Watch.
func (k *Keeper) OnIdle(f func()) { k.idle = f }

// Expect keeps anything from being said of absence until the pods of a node have been
// listed, too, as those of a cluster's own have to be from the start. Of a group's it is
// called before the cluster's own node is watched.
func (k *Keeper) Expect(name string) {
	cluster, _ := wire.ParseNodeName(name)
	k.drop(k.change(cluster, func(n *node) { n.expect(name) }))
}

// Release is the inverse of Expect, for a node that is no more, or somebody else's,
// and not watched. Of a cluster of which no node is left nothing is said.
func (k *Keeper) Release(name string) {
	cluster, group := wire.ParseNodeName(name)
	n := k.find(cluster)
	if group == "" {
		n = k.change(cluster, func(n *node) { n.disowned = true })
	}
	if n == nil {
		return
	}
	n.mu.Lock()
	delete(n.rolls, name)
	k.conclude(n)
	n.mu.Unlock()
	k.drop(n)
}

// Idle reports whether no pod is bound to a group's node. Before that is known, it is
// not.
func (k *Keeper) Idle(name string) bool {
	cluster, _ := wire.ParseNodeName(name)
	n := k.find(cluster)
	if n == nil {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r, ok := n.rolls[name]
	return !ok || r.listed && r.pods == 0
}

// expect makes a node one that has to be listed; n.mu is held.
func (n *node) expect(name string) {
	if name == n.name {
		n.disowned = false
		return
	}
	if _, ok := n.rolls[name]; ok {
		return
	}
	if n.rolls == nil {
		n.rolls = map[string]*roll{}
	}
	r := &roll{}
	for _, h := range n.pods {
		if h.pod.Spec.NodeName == name {
			r.pods++
		}
	}
	n.rolls[name] = r
}

// listed notes that the pods of one node are known; n.mu is held.
func (k *Keeper) listed(n *node, name string) {
	if name == n.name {
		n.listedSelf = true
	} else if r, ok := n.rolls[name]; ok {
		r.listed = true
		k.tellIdle(r)
	}
	k.conclude(n)
}

// conclude says what is absent, if the pods of every node of the cluster are known;
// n.mu is held. What is said stays said: the node of a group that comes later has no
// pods of before.
func (k *Keeper) conclude(n *node) {
	if n.muted || !n.allListed() {
		return
	}
	k.config.Sync.Source(n.name, wire.KindPod).Complete()
	k.config.Sync.Source(n.name, wire.KindPodForced).Complete()
	k.objects.listed(n.audience)
	k.tokensListed(n)
	if !n.complete {
		n.complete = true
		k.waitAnew(n) // only now is the agent asked what its pods are like
	}
}

func (n *node) allListed() bool {
	for _, r := range n.rolls {
		if !r.listed {
			return false
		}
	}
	return n.listedSelf || n.disowned && len(n.rolls) > 0
}

// tally counts a pod of a group's node in or out; n.mu is held.
func (k *Keeper) tally(n *node, pod *corev1.Pod, change int) {
	if r, ok := n.rolls[pod.Spec.NodeName]; ok {
		r.pods += change
		k.tellIdle(r)
	}
}

func (k *Keeper) tellIdle(r *roll) {
	if r.listed && r.pods == 0 && k.idle != nil {
		k.idle()
	}
}

// passed reports whether a pod is one of an earlier life of its name, on another node
// of the cluster: the watches of two nodes have no order.
func (h *held) passed(pod *corev1.Pod) bool {
	return h.pod.UID != pod.UID && h.pod.Spec.NodeName != pod.Spec.NodeName && older(pod, h.pod)
}
