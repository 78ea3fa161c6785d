// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod/podobject"
)

// clusterState is what is known of the pods of a cluster: of its virtual node, and of those
// of its groups, if it has any.
type clusterState struct {
	// name of the cluster, and of its own node.
	name string

	mu   sync.Mutex // guards what follows
	pods map[wire.PodKey]*podState
	// forcedKeys are the keys of the pods that the agent is told were deleted by force, the
	// oldest first.
	forcedKeys []string
	// watches counts the reflectors that bring pods, one for each virtual node.
	watches int
	// groupNodes are those of the nodes of groups, by their names; ownNodeListed is that of the
	// cluster's own, unless its Node is somebody else's: disowned.
	groupNodes                    map[string]*groupNode
	ownNodeListed, ownNodeForeign bool
	// wasComplete: the pods of all of them were known once.
	wasComplete bool
	// subscriber is the cluster as one to which objects are published.
	subscriber *podobject.Subscriber
	// forgotten: the cluster was forgotten. Nothing of it is published any more.
	forgotten bool
	// streams counts the streams of Sync to the cluster: two while one takes over
	// from another.
	streams int
	// tokenStreams counts those of them that tokens are asked for by.
	tokenStreams int
	// reportsComplete: all that the agent has to say has come, so that the reports are what
	// there is.
	reportsComplete bool
	// connectionChanged is when the cluster was connected or cut off last.
	connectionChanged time.Time
}

// podState is one pod.
type podState struct {
	// pod is as the watch has it, own as our last write left it, if that is later.
	pod, written *corev1.Pod
	// firstSeen is when the pod was seen first.
	firstSeen time.Time
	// published: the pod is published.
	published bool
	// namespaceUID is that of its namespace, as it was published.
	namespaceUID types.UID
	// hubTokens: its tokens are those of the hub. grants are they, nil while there is
	// nothing to be had.
	hubTokens bool
	tokens    *tokenSet
	// refs are the objects that it keeps watched.
	refs []wire.PodObjectKey
	// report is the agent's last, nil before the first.
	report *report
	// hasHiddenAddresses: an address of the last report is not shown; warned is what an event of
	// the pod says of that.
	hasHiddenAddresses bool
	addressWarning     string
	// objectWarning is what an event of the pod says that it may not have.
	objectWarning string
	// deletionConfirmed: its deletion was confirmed. The watch may not have it yet.
	deletionConfirmed bool
	// events are those that the agent has, by UID.
	events map[string]eventState
	// eventLimit bounds the writes of events.
	eventLimit eventLimiter
}

// latest returns the pod as it was read or written last. What is later, the watch
// or our write, its version says.
func (p *podState) latest() *corev1.Pod {
	if p.written == nil {
		return p.pod
	}
	if isOlder(p.pod, p.written) {
		return p.written
	}
	p.written = nil
	return p.pod
}

// isOlder tells whether a is of before b; of what cannot be compared it is not known.
func isOlder(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// clusterTable holds what is known of the pods of each cluster.
type clusterTable struct {
	mu       sync.Mutex // guards clusters; taken before a cluster's
	clusters map[string]*clusterState
}

func (t *clusterTable) getCluster(name string) *clusterState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clusters[name]
}

// updateCluster changes a node, made when there is none, under its lock.
func (t *clusterTable) updateCluster(name string, f func(*clusterState)) *clusterState {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.clusters[name]
	if !ok || n.isForgotten() {
		n = &clusterState{name: name, pods: map[wire.PodKey]*podState{}, subscriber: podobject.NewSubscriber(name)}
		t.clusters[name] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
	return n
}

// updatePod calls f with a pod, if that is there, under its node's lock.
func (t *clusterTable) updatePod(r podRef, f func(*podState)) {
	n := t.getCluster(r.cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.pods[r.key]; ok {
		f(p)
	}
}

func (n *clusterState) isForgotten() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forgotten
}

// deleteIfUnused forgets a node that nobody uses, and of which nothing has to be kept: it
// has no pods, or its cluster was forgotten.
func (c *Controller) deleteIfUnused(n *clusterState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches > 0 || !n.forgotten && (n.streams > 0 || len(n.pods) > 0 || len(n.groupNodes) > 0 || n.ownNodeForeign) {
		return
	}
	for key := range n.pods {
		c.deletePod(n, key)
	}
	c.trimForced(n, 0) // the next node of that name would not know of them
	if c.clusters[n.name] == n {
		delete(c.clusters, n.name)
	}
}
