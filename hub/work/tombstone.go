// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// maxTombstones bounds the memory of works that are no more. Beyond it a work that was
// deleted at once is one that is missed: its objects go after the agent's grace.
const maxTombstones = 10_000

// tombstone is what is known of a work that is no more.
type tombstone struct {
	uid types.UID
	// deletion is what the agent is to be told; nil where nobody has seen one.
	deletion *resource.Resource
	// published: deletion stands in Sync, until the agent says that nothing is left.
	published bool
	// background is of a deletion that the work did not wait for; nil of others.
	background *backgroundDeletion
}

// eventHandler enqueues what happens to the works of one kind, and takes note of how
// they end: the cache has nothing of them then.
type eventHandler struct {
	handler.EnqueueRequestForObject

	works *Works
	kind  *kind
}

// Delete records the deletion of a work, and enqueues it.
func (f *eventHandler) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	f.works.recordTombstone(f.kind, e.Object, e.DeleteStateUnknown)
	f.EnqueueRequestForObject.Delete(ctx, e, q)
}

// recordTombstone takes note of a work that is no more. It may never have been published as one
// on its way: an API server that deletes an object in the instant in which it gets its
// first finalizer does so at once. A work that is only missed, for missed is what
// the watch says then, may have gone in any way.
func (w *Works) recordTombstone(k *kind, obj client.Object, missed bool) {
	key, e := k.keyOf(obj), tombstone{uid: obj.GetUID()}
	// Nobody could take the annotation from one that was suspended, so that its cluster
	// would wait for ever; its objects go after the grace of an eviction.
	if !missed && !wire.Suspends(obj.GetAnnotations()) {
		var err error
		if e.deletion, err = k.encodeDeletion(obj); err != nil {
			w.log.Error(err, "work is deleted, and its cluster will miss it", "work", key.String())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Of two that end before anybody has looked, the first is what the agent knows.
	if _, before := w.tombstones[key]; !before {
		w.tombstones[key] = e
	}
}

// encodeDeletion returns what the agent is sent of a deleted work.
func (k *kind) encodeDeletion(obj client.Object) (*resource.Resource, error) {
	it, ok := k.Wrap(obj)
	if !ok {
		return nil, fmt.Errorf("watch of %s works told of a %T", k.Name, obj)
	}
	now := metav1.Now()
	it.Object().SetDeletionTimestamp(&now)
	r, err := k.encode(it)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// publishTombstone brings the end of a work into Sync. Where none was noted there is
// nothing to do yet: the cache is ahead of the event.
func (w *Works) publishTombstone(key wire.WorkKey, managed bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.tombstones[key]
	switch {
	case !ok || e.published:
		return nil
	case !managed:
		delete(w.tombstones, key)
		return nil
	}
	source := w.source(key.Namespace)
	if e.deletion != nil && len(w.tombstones) <= maxTombstones {
		// Where it stands there already, the agent was told before the work could go.
		if ref, published := source.Ref(key.String()); published && ref.UID == string(e.uid) && ref != resource.RefOf(*e.deletion) {
			e.published = true
			w.tombstones[key] = e
			return source.Put(*e.deletion)
		}
	}
	delete(w.tombstones, key)
	source.Delete(key.String())
	return nil
}

// dropReplacedTombstone forgets the end of an earlier work of that name.
func (w *Works) dropReplacedTombstone(key wire.WorkKey, by types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// One of the same UID is the end of what the cache had a moment ago.
	if e, ok := w.tombstones[key]; ok && e.uid != by {
		delete(w.tombstones, key)
	}
}

// publishedTombstone returns the tombstone of a work, if it is published.
func (w *Works) publishedTombstone(key wire.WorkKey) (tombstone, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.tombstones[key]
	return e, ok && e.published
}

// acknowledgeDeletion: the agent has nothing more of a work that is gone from here.
func (w *Works) acknowledgeDeletion(key wire.WorkKey, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.tombstones[key]; !ok || !e.published || e.uid != uid {
		return
	}
	delete(w.tombstones, key)
	// Under the lock, lest a work that takes the name now is withdrawn.
	w.source(key.Namespace).Delete(key.String())
}

// deleteClusterState drops what is kept for a cluster that is no more, or no more this hub's.
func (w *Works) deleteClusterState(cluster string) {
	w.sync.Forget(cluster)
	w.renderings.deleteCluster(cluster)
	w.renderPacer.Forget(cluster)
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.tombstones {
		if key.Namespace == cluster {
			delete(w.tombstones, key)
		}
	}
}
