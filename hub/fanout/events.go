// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/internal/managedcluster"
)

// queue has the parents to reconcile.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// workHandler lead from Works to their parents. What becomes of a thousand Works is looked
// at as often as it may be written.
func (k *reconciler) workHandler() handler.Funcs {
	later := func(q queue, works ...client.Object) {
		for _, w := range works {
			if name, ok := parseOwner(w, k.name); ok {
				q.AddAfter(reconcile.Request{NamespacedName: name}, k.statusDelay(name))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { later(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { later(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			if name, ok := parseOwner(e.Object, k.name); ok {
				q.Add(reconcile.Request{NamespacedName: name})
			}
			for _, name := range k.blockedParents(client.ObjectKeyFromObject(e.Object)) {
				q.Add(reconcile.Request{NamespacedName: name})
			}
		},
	}
}

// blockedParents returns the parents that a Work of another owner blocks.
func (k *reconciler) blockedParents(work types.NamespacedName) (parents []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, works := range k.foreignWorks {
		if slices.Contains(works, work) {
			parents = append(parents, name)
		}
	}
	return parents
}

// statusDelay is how long the status of a parent stays as it is.
func (k *reconciler) statusDelay(name types.NamespacedName) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.statuses[name]
	if st == nil {
		return 0
	}
	return max(0, time.Until(st.at.Add(statusInterval)))
}

// clusterHandler leads from clusters to parents. Which clusters there are concerns all of them,
// whatever they select: each counts those that its author may not know of.
func (k *reconciler) clusterHandler() handler.Funcs {
	add := func(q queue, parents []reconcile.Request) {
		for _, parent := range parents {
			q.Add(parent)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { add(q, k.listParents(ctx, allParents)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, was := e.ObjectOld.(*clusterv1.ManagedCluster)
			after, is := e.ObjectNew.(*clusterv1.ManagedCluster)
			if !was || !is || managedcluster.IsSelectable(before) != managedcluster.IsSelectable(after) {
				add(q, k.listParents(ctx, allParents))
				return
			}
			add(q, k.listSelecting(ctx, before))
			add(q, k.listSelecting(ctx, after))
		},
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { add(q, k.listParents(ctx, allParents)) },
	}
}

func allParents(parent) bool { return true }

// listSelecting are the parents that select a cluster.
func (k *reconciler) listSelecting(ctx context.Context, cluster client.Object) []reconcile.Request {
	return k.listParents(ctx, func(p parent) bool {
		selector, err := metav1.LabelSelectorAsSelector(p.selector)
		return err == nil && selector.Matches(labels.Set(cluster.GetLabels()))
	})
}

// listParents are the parents that match.
func (k *reconciler) listParents(ctx context.Context, match func(parent) bool) (requests []reconcile.Request) {
	list := k.newList()
	if err := k.cfg.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		k.cfg.Logger.Error(err, "parents were not listed", "kind", k.name)
		return nil
	}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if obj, ok := o.(client.Object); ok && match(k.newParent(obj)) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
		}
		return nil
	})
	if err != nil {
		k.cfg.Logger.Error(err, "parents were not listed", "kind", k.name)
	}
	return requests
}

// selectionChanged are those after which another parent may select a cluster.
func selectionChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*clusterv1.ManagedCluster)
		after, is := e.ObjectNew.(*clusterv1.ManagedCluster)
		return was && is && (managedcluster.IsSelectable(before) != managedcluster.IsSelectable(after) || !maps.Equal(before.Labels, after.Labels))
	}}
}
