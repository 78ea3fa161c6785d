// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// namespaces tells agents which of the namespaces that they made for pods have none on
// the hub any more. An agent that does not know a namespace's UID is told that it is
// gone whether it is there or not: it cannot ask which namespaces the hub has.
type namespaces struct {
	sync   Replicator
	logger logr.Logger

	mu sync.Mutex // taken after a node's, before those of Sync's sources; guards what follows
	// listed: uids are those of all namespaces of the hub, by name.
	listed bool
	uids   map[string]types.UID
	// made are those that agents made, by cluster.
	made map[string]*madeNamespaces
}

// madeNamespaces are the namespaces that an agent made: the UIDs that it says of the
// hub's, by their names there.
type madeNamespaces struct {
	uids map[string]types.UID
	// complete: the agent has told of all.
	complete bool
}

func newNamespaces(c Config) *namespaces {
	return &namespaces{sync: c.Sync, logger: c.Logger, uids: map[string]types.UID{}, made: map[string]*madeNamespaces{}}
}

// uid of a namespace of the hub, empty while it is not known.
func (n *namespaces) uid(name string) types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.uids[name]
}

// receive takes one that an agent made.
func (n *namespaces) receive(cluster string, r resource.Resource) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !wire.IsPodNamespace(r.Key) || !n.roomFor(cluster, r.Key) {
		return
	}
	n.of(cluster).uids[r.Key] = types.UID(r.UID)
	n.publishGone(cluster, r.Key)
}

// withdrawn: the agent does not have it any more.
func (n *namespaces) withdrawn(cluster, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if made := n.made[cluster]; made != nil {
		delete(made.uids, name)
		n.publishGone(cluster, name)
	}
}

// synced: the agent has told of all that it made.
func (n *namespaces) synced(cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(cluster).complete = true
	n.conclude(cluster)
}

// knows tells whether one that an agent made is to be remembered.
func (n *namespaces) knows(cluster, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return wire.IsPodNamespace(name) && n.roomFor(cluster, name)
}

// forget drops what a cluster said.
func (n *namespaces) forget(cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.made, cluster)
}

// of returns what a cluster's agent made; n.mu is held.
func (n *namespaces) of(cluster string) *madeNamespaces {
	made, ok := n.made[cluster]
	if !ok {
		made = &madeNamespaces{uids: map[string]types.UID{}}
		n.made[cluster] = made
	}
	return made
}

// roomFor bounds what an agent can have us hold; n.mu is held.
func (n *namespaces) roomFor(cluster, name string) bool {
	made := n.made[cluster]
	if made == nil {
		return true
	}
	_, ok := made.uids[name]
	return ok || len(made.uids) < wire.PodNamespacesMax
}

// publishGone tells a cluster whether a namespace is gone that its agent made; n.mu is held.
func (n *namespaces) publishGone(cluster, name string) {
	if !n.listed {
		return
	}
	gone := n.sync.Source(cluster, wire.KindPodNamespaceGone)
	uid, made := n.made[cluster].uids[name]
	if now, there := n.uids[name]; !made || there && now == uid {
		gone.Delete(name)
		return
	}
	if err := gone.Put(resource.Resource{Key: name, UID: string(uid)}); err != nil {
		n.logger.Error(err, "cannot tell a cluster that a namespace is gone", "cluster", cluster, "namespace", name)
	}
}

// conclude says that a cluster has been told of all that is gone, once both sides have
// said what they have; n.mu is held.
func (n *namespaces) conclude(cluster string) {
	if n.listed && n.made[cluster].complete {
		n.sync.Source(cluster, wire.KindPodNamespaceGone).Complete()
	}
}

// set takes the UID of a namespace of the hub, empty for one that is gone, and tells
// whether it is news.
func (n *namespaces) set(name string, uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uids[name] == uid {
		return false
	}
	if n.uids[name] = uid; uid == "" {
		delete(n.uids, name)
	}
	for cluster, made := range n.made {
		if _, ok := made.uids[name]; ok {
			n.publishGone(cluster, name)
		}
	}
	return true
}

// replace takes all namespaces of the hub.
func (n *namespaces) replace(uids map[string]types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uids, n.listed = uids, true
	for cluster, made := range n.made {
		for _, name := range slices.Sorted(maps.Keys(made.uids)) {
			n.publishGone(cluster, name)
		}
		n.conclude(cluster)
	}
}

// receiveNamespace takes a namespace that an agent made. It runs on the stream's
// goroutine.
func (k *Keeper) receiveNamespace(cluster string, r resource.Resource) {
	k.unlessForgotten(cluster, func() { k.namespaces.receive(cluster, r) })
}

// namespacesSynced: an agent has told of all namespaces that it made.
func (k *Keeper) namespacesSynced(cluster string) {
	k.unlessForgotten(cluster, func() { k.namespaces.synced(cluster) })
}

// unlessForgotten calls f under the lock of a cluster's node, unless the cluster was
// forgotten while its stream goes on. Nobody would forget what a report left behind after that.
func (k *Keeper) unlessForgotten(cluster string, f func()) {
	n := k.find(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.muted {
		f()
	}
}

// namespaceReflector follows the namespaces of the hub. Their UIDs alone are kept.
func (k *Keeper) namespaceReflector() *cache.Reflector {
	all := k.config.Client.CoreV1().Namespaces()
	watched := listWatch{
		kind: &corev1.Namespace{}, watch: all.Watch,
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, consistent(o))
		},
	}
	return watched.reflector(k.config.Client, namespaceStore{keeper: k}, "the namespaces of the hub")
}

// namespaceStore is what the reflector writes the namespaces into.
type namespaceStore struct{ keeper *Keeper }

var _ cache.ReflectorStore = namespaceStore{}

// Add takes a namespace.
func (s namespaceStore) Add(obj any) error {
	if ns, ok := obj.(*corev1.Namespace); ok && s.keeper.namespaces.set(ns.Name, ns.UID) {
		s.keeper.republishPods(func(name string) bool { return name == ns.Name })
	}
	return nil
}

// Update takes a changed namespace.
func (s namespaceStore) Update(obj any) error { return s.Add(obj) }

// Delete takes a namespace that is gone.
func (s namespaceStore) Delete(obj any) error {
	if ns, ok := obj.(*corev1.Namespace); ok {
		s.keeper.namespaces.set(ns.Name, "")
	}
	return nil
}

// Replace takes all namespaces. Only now is any said to be gone.
func (s namespaceStore) Replace(objs []any, _ string) error {
	uids := make(map[string]types.UID, len(objs))
	for _, obj := range objs {
		if ns, ok := obj.(*corev1.Namespace); ok {
			uids[ns.Name] = ns.UID
		}
	}
	s.keeper.namespaces.replace(uids)
	s.keeper.republishPods(func(string) bool { return true })
	return nil
}

// Resync does nothing.
func (s namespaceStore) Resync() error { return nil }

// republishPods publishes the pods of some namespaces again that were published without
// the UID that these have now.
func (k *Keeper) republishPods(which func(string) bool) {
	k.mu.Lock()
	nodes := slices.Collect(maps.Values(k.nodes))
	k.mu.Unlock()
	for _, n := range nodes {
		n.mu.Lock()
		for key, h := range n.pods {
			if h.sent && which(key.Namespace) && h.namespaceUID != k.namespaces.uid(key.Namespace) {
				k.publish(n, key, h)
			}
		}
		n.mu.Unlock()
	}
}
