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
)

// node is what is known of the pods of a cluster: of its virtual node, and of those
// of its groups, if it has any.
type node struct {
	// name of the cluster, and of its own node.
	name string

	mu   sync.Mutex // guards what follows
	pods map[wire.PodKey]*held
	// forced are the keys of the pods that the agent is told were deleted by force, the
	// oldest first.
	forced []string
	// watched counts the reflectors that bring pods, one for each virtual node.
	watched int
	// rolls are those of the nodes of groups, by their names; listedSelf is that of the
	// cluster's own, unless its Node is somebody else's: disowned.
	rolls                map[string]*roll
	listedSelf, disowned bool
	// complete: the pods of all of them were known once.
	complete bool
	// audience is the cluster as one to which objects are published.
	audience *audience
	// muted: the cluster was forgotten. Nothing of it is published any more.
	muted bool
	// streams counts the streams of Sync to the cluster: two while one takes over
	// from another.
	streams int
	// askers counts those of them that tokens are asked for by.
	askers int
	// live: all that the agent has to say has come, so that the reports are what
	// there is.
	live bool
	// since is when the cluster was connected or cut off last.
	since time.Time
}

// held is one pod.
type held struct {
	// pod is as the watch has it, own as our last write left it, if that is later.
	pod, own *corev1.Pod
	// since is when the pod was seen first.
	since time.Time
	// sent: the pod is published.
	sent bool
	// namespaceUID is that of its namespace, as it was published.
	namespaceUID types.UID
	// issued: its tokens are those of the hub. grants are they, nil while there is
	// nothing to be had.
	issued bool
	grants *grants
	// refs are the objects that it keeps watched.
	refs []wire.PodObjectKey
	// report is the agent's last, nil before the first.
	report *report
	// dropped: an address of the last report is not shown; warned is what an event of
	// the pod says of that.
	dropped bool
	warned  string
	// denied is what an event of the pod says that it may not have.
	denied string
	// released: its deletion was confirmed. The watch may not have it yet.
	released bool
	// events are those that the agent has, by UID.
	events map[string]eventState
	// allowance bounds the writes of events.
	allowance allowance
}

// latest returns the pod as it was read or written last. What is later, the watch
// or our write, its version says.
func (h *held) latest() *corev1.Pod {
	if h.own == nil {
		return h.pod
	}
	if older(h.pod, h.own) {
		return h.own
	}
	h.own = nil
	return h.pod
}

// older tells whether a is of before b; of what cannot be compared it is not known.
func older(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

func (k *Keeper) find(name string) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[name]
}

// change changes a node, made when there is none, under its lock.
func (k *Keeper) change(name string, f func(*node)) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.nodes[name]
	if !ok || n.isMuted() {
		n = &node{name: name, pods: map[wire.PodKey]*held{}, audience: newAudience(name)}
		k.nodes[name] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
	return n
}

func (n *node) isMuted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.muted
}

// drop forgets a node that nobody uses, and of which nothing has to be kept: it
// has no pods, or its cluster was forgotten.
func (k *Keeper) drop(n *node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watched > 0 || !n.muted && (n.streams > 0 || len(n.pods) > 0 || len(n.rolls) > 0 || n.disowned) {
		return
	}
	for key := range n.pods {
		k.remove(n, key)
	}
	k.keepForced(n, 0) // the next node of that name would not know of them
	if k.nodes[n.name] == n {
		delete(k.nodes, n.name)
	}
}
