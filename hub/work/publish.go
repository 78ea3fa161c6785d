// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// workReconciler reconciles the works of one kind.
type workReconciler struct {
	works *Works
	kind  *kind
}

// Reconcile publishes one work.
func (p workReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return requeueOnConflict(p.works.publish(ctx, p.kind, req.NamespacedName))
}

// requeueOnConflict turns a conflict into a requeue: the cache lags behind.
func requeueOnConflict(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 1}, nil
	}
	return ctrl.Result{}, err
}

// publish brings a work into Sync as the cache has it. It waits for a run for the same
// work, of the controller of its cluster: one that was overtaken by the end of the work
// would publish it for good.
func (w *Works) publish(ctx context.Context, k *kind, name types.NamespacedName) error {
	key := k.key(name).String()
	w.keyLocks.LockKey(key)
	defer func() { _ = w.keyLocks.UnlockKey(key) }()
	managed, known, err := w.clusterState(ctx, name.Namespace)
	if err != nil {
		return err
	}
	it := k.New()
	obj := it.Object()
	switch err := w.client.Get(ctx, name, obj); {
	case apierrors.IsNotFound(err):
		w.deleteState(k.key(name))
		return w.publishTombstone(k.key(name), managed)
	case err != nil:
		return fmt.Errorf("get work: %w", err)
	}
	w.dropReplacedTombstone(k.key(name), obj.GetUID())
	switch leaving := obj.GetDeletionTimestamp() != nil; {
	case leaving && !known && !k.shared:
		return w.removeFinalizer(ctx, k, obj) // its cluster is no more: nobody will ever answer
	case !managed:
		w.warnNotManaged(k, obj)
		return nil
	case leaving && w.isDeletedInBackground(k.key(name), obj):
		return w.publishDeletion(ctx, k, it)
	case leaving && !controllerutil.ContainsFinalizer(obj, k.Finalizer):
		w.source(name.Namespace).Delete(k.key(name).String())
		return nil
	case k.ValidateName(name.Name) != nil:
		return w.reportInvalidName(ctx, k, obj)
	case leaving:
		return w.publishDeletion(ctx, k, it)
	}
	if err := w.addFinalizer(ctx, k, obj); err != nil {
		return err
	}
	return w.publishCurrent(ctx, k, it)
}

// deleteState forgets what was kept for a work that is no more.
func (w *Works) deleteState(key wire.WorkKey) {
	w.queue.Limiter.Forget(key)
	w.ownWrites.Forget(key)
	w.renderings.delete(key)
}

func (w *Works) source(cluster string) *resource.Source {
	return w.sync.Source(cluster, wire.KindWork)
}

// publishCurrent puts a work into Sync. One that is too large to travel is reported as
// failed; the version before it stays in force.
func (w *Works) publishCurrent(ctx context.Context, k *kind, it workconvert.Work) error {
	obj := it.Object()
	if refersToCluster(obj) {
		return w.publishRendered(ctx, k, it)
	}
	r, err := k.encode(it)
	if err != nil {
		return err
	}
	if obj.GetDeletionTimestamp() != nil {
		w.renderings.delete(k.keyOf(obj))
	} else if w.renderings.clear(k.keyOf(obj)) {
		w.queue.Add(k.keyOf(obj))
	}
	return w.putResource(k, obj, r)
}

func (w *Works) putResource(k *kind, obj client.Object, r resource.Resource) error {
	err := w.source(obj.GetNamespace()).Put(r)
	if errors.Is(err, resource.ErrTooLarge) || errors.Is(err, resource.ErrInvalidKey) {
		w.reportRefusal(k, obj, err)
		return nil
	}
	return err
}

// reportInvalidName is for a work whose anchor can have no name: it never was in a spoke.
func (w *Works) reportInvalidName(ctx context.Context, k *kind, obj client.Object) error {
	if obj.GetDeletionTimestamp() != nil {
		return w.removeFinalizer(ctx, k, obj)
	}
	w.reportRefusal(k, obj, k.ValidateName(obj.GetName()))
	return nil
}

// reportRefusal reports that a work is not sent.
func (w *Works) reportRefusal(k *kind, obj client.Object, why error) {
	w.queue.Enqueue(k.keyOf(obj), newHubReport(obj.GetUID(), k.FailedCondition(obj, why)))
}

// newHubReport is what the hub itself has to say of a work: one condition.
func newHubReport(uid types.UID, c metav1.Condition) statuswriter.Report {
	return statuswriter.Report{UID: uid, FromHub: true, Status: wire.WorkStatus{
		ObservedGeneration: c.ObservedGeneration, Conditions: []metav1.Condition{c},
	}}
}

// loadResource makes a body at the moment it is sent.
func (w *Works) loadResource(cluster, key string) (resource.Resource, bool) {
	k, name, ok := w.parseKey(cluster, key)
	if !ok {
		return resource.Resource{}, false
	}
	ctx := context.Background()
	it := k.New()
	err := w.client.Get(ctx, name, it.Object())
	if e, leaving := w.publishedTombstone(k.key(name)); leaving && apierrors.IsNotFound(err) {
		return *e.deletion, true
	}
	if err != nil {
		return resource.Resource{}, false // gone: its Delete follows
	}
	if refersToCluster(it.Object()) {
		// What has no value now is not sent: whoever notices says so of the work.
		r, err := w.render(ctx, k, it)
		return r, err == nil
	}
	r, err := k.encode(it)
	return r, err == nil
}

// parseKey returns the work that a cluster's key is about, if it may be.
func (w *Works) parseKey(cluster, key string) (*kind, types.NamespacedName, bool) {
	parsed, err := wire.ParseWorkKey(key)
	if err != nil || parsed.Namespace != cluster {
		return nil, types.NamespacedName{}, false
	}
	k, ok := w.kind(parsed)
	return k, namespacedName(parsed), ok
}

// warnNotManaged records once that the namespace of a work is not that of a cluster.
func (w *Works) warnNotManaged(k *kind, work client.Object) {
	if k.shared {
		return
	}
	w.mu.Lock()
	_, before := w.warnedUIDs[work.GetUID()]
	if len(w.warnedUIDs) >= maxWarned {
		clear(w.warnedUIDs)
	}
	w.warnedUIDs[work.GetUID()] = struct{}{}
	w.mu.Unlock()
	if !before {
		w.events.Eventf(work, nil, corev1.EventTypeWarning, "ClusterNotManaged", "Publish",
			"namespace %s is not that of an accepted cluster of this hub: nothing is applied", work.GetNamespace())
	}
}

// listNames of the works of one kind in the namespace of a cluster, from the cache.
func (w *Works) listNames(ctx context.Context, k *kind, cluster string) ([]types.NamespacedName, error) {
	list := k.NewList()
	// Nothing but the names is read, and they are strings: no need for copies.
	if err := w.client.List(ctx, list, client.InNamespace(cluster), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s works: %w", k.Name, err)
	}
	out := make([]types.NamespacedName, 0, meta.LenList(list))
	err := meta.EachListItem(list, func(o runtime.Object) error {
		obj, err := meta.Accessor(o)
		if err == nil {
			out = append(out, types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()})
		}
		return err
	})
	return out, err
}
