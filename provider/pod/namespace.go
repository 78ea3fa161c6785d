// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// namespaceTracker tells agents which of the namespaces that they made for pods have none on
// the hub any more. An agent that does not know a namespace's UID is told that it is
// gone whether it is there or not: it cannot ask which namespaces the hub has.
type namespaceTracker struct {
	sync   Replicator
	logger logr.Logger

	mu sync.Mutex // taken after a node's, before those of Sync's sources; guards what follows
	// listed: uids are those of all namespaces of the hub, by name.
	listed bool
	uids   map[string]types.UID
	// created are those that agents made, by cluster.
	created map[string]*createdNamespaces
}

// createdNamespaces are the namespaces that an agent made: the UIDs that it says of the
// hub's, by their names there.
type createdNamespaces struct {
	uids map[string]types.UID
	// complete: the agent has told of all.
	complete bool
}

func newNamespaceTracker(c Config) *namespaceTracker {
	return &namespaceTracker{sync: c.Sync, logger: c.Logger, uids: map[string]types.UID{}, created: map[string]*createdNamespaces{}}
}

// uid of a namespace of the hub, empty while it is not known.
func (n *namespaceTracker) uid(name string) types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.uids[name]
}

// handleCreated takes one that an agent made.
func (n *namespaceTracker) handleCreated(cluster string, r resource.Resource) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !wire.IsPodNamespace(r.Key) || !n.hasRoom(cluster, r.Key) {
		return
	}
	n.createdBy(cluster).uids[r.Key] = types.UID(r.UID)
	n.publishGone(cluster, r.Key)
}

// handleRemoved: the agent does not have it any more.
func (n *namespaceTracker) handleRemoved(cluster, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if made := n.created[cluster]; made != nil {
		delete(made.uids, name)
		n.publishGone(cluster, name)
	}
}

// handleSynced: the agent has told of all that it made.
func (n *namespaceTracker) handleSynced(cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.createdBy(cluster).complete = true
	n.completeIfListed(cluster)
}

// accepts tells whether one that an agent made is to be remembered.
func (n *namespaceTracker) accepts(cluster, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return wire.IsPodNamespace(name) && n.hasRoom(cluster, name)
}

// removeCluster drops what a cluster said.
func (n *namespaceTracker) removeCluster(cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.created, cluster)
}

// createdBy returns what a cluster's agent made; n.mu is held.
func (n *namespaceTracker) createdBy(cluster string) *createdNamespaces {
	made, ok := n.created[cluster]
	if !ok {
		made = &createdNamespaces{uids: map[string]types.UID{}}
		n.created[cluster] = made
	}
	return made
}

// hasRoom bounds what an agent can have us hold; n.mu is held.
func (n *namespaceTracker) hasRoom(cluster, name string) bool {
	made := n.created[cluster]
	if made == nil {
		return true
	}
	_, ok := made.uids[name]
	return ok || len(made.uids) < wire.PodNamespacesMax
}

// publishGone tells a cluster whether a namespace is gone that its agent made; n.mu is held.
func (n *namespaceTracker) publishGone(cluster, name string) {
	if !n.listed {
		return
	}
	gone := n.sync.Source(cluster, wire.KindPodNamespaceGone)
	uid, made := n.created[cluster].uids[name]
	if now, there := n.uids[name]; !made || there && now == uid {
		gone.Delete(name)
		return
	}
	if err := gone.Put(resource.Resource{Key: name, UID: string(uid)}); err != nil {
		n.logger.Error(err, "cannot tell a cluster that a namespace is gone", "cluster", cluster, "namespace", name)
	}
}

// completeIfListed says that a cluster has been told of all that is gone, once both sides have
// said what they have; n.mu is held.
func (n *namespaceTracker) completeIfListed(cluster string) {
	if n.listed && n.created[cluster].complete {
		n.sync.Source(cluster, wire.KindPodNamespaceGone).Complete()
	}
}

// setUID takes the UID of a namespace of the hub, empty for one that is gone, and tells
// whether it is news.
func (n *namespaceTracker) setUID(name string, uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uids[name] == uid {
		return false
	}
	if n.uids[name] = uid; uid == "" {
		delete(n.uids, name)
	}
	for cluster, made := range n.created {
		if _, ok := made.uids[name]; ok {
			n.publishGone(cluster, name)
		}
	}
	return true
}

// replaceUIDs takes all namespaces of the hub.
func (n *namespaceTracker) replaceUIDs(uids map[string]types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uids, n.listed = uids, true
	for cluster, made := range n.created {
		for _, name := range slices.Sorted(maps.Keys(made.uids)) {
			n.publishGone(cluster, name)
		}
		n.completeIfListed(cluster)
	}
}

// handleNamespace takes a namespace that an agent made. It runs on the stream's
// goroutine.
func (c *Controller) handleNamespace(cluster string, r resource.Resource) {
	c.updateUnlessForgotten(cluster, func() { c.namespaces.handleCreated(cluster, r) })
}

// handleNamespacesSynced: an agent has told of all namespaces that it made.
func (c *Controller) handleNamespacesSynced(cluster string) {
	c.updateUnlessForgotten(cluster, func() { c.namespaces.handleSynced(cluster) })
}

// updateUnlessForgotten calls f under the lock of a cluster's node, unless the cluster was
// forgotten while its stream goes on. Nobody would forget what a report left behind after that.
func (c *Controller) updateUnlessForgotten(cluster string, f func()) {
	n := c.getCluster(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.forgotten {
		f()
	}
}

// watchNamespaces follows the namespaces of the hub until ctx ends. Their UIDs alone are kept.
func (c *Controller) watchNamespaces(ctx context.Context) {
	handler := &watcher.StoreHandler[string, types.UID]{
		Read: func(obj metav1.Object) (string, types.UID, bool) { return obj.GetName(), obj.GetUID(), true },
		Replace: func(uids map[string]types.UID) {
			c.namespaces.replaceUIDs(uids)
			c.republishPods(func(string) bool { return true })
		},
		Set: func(name string, uid types.UID) {
			if c.namespaces.setUID(name, uid) {
				c.republishPods(func(other string) bool { return other == name })
			}
		},
		Delete: func(name string, _ types.UID) { c.namespaces.setUID(name, "") },
		Log:    c.config.Logger, Name: "the namespaces of the hub",
	}
	feed := watcher.NewListWatch(c.config.Client.CoreV1().Namespaces(), nil)
	(&watcher.Watcher{ListWatch: feed, Handler: handler, Log: c.config.Logger}).Run(ctx)
}

// republishPods publishes the pods of some namespaces again that were published without
// the UID that these have now.
func (c *Controller) republishPods(which func(string) bool) {
	c.mu.Lock()
	nodes := slices.Collect(maps.Values(c.clusters))
	c.mu.Unlock()
	for _, n := range nodes {
		n.mu.Lock()
		for key, p := range n.pods {
			if p.published && which(key.Namespace) && p.namespaceUID != c.namespaces.uid(key.Namespace) {
				c.publish(n, key, p)
			}
		}
		n.mu.Unlock()
	}
}
