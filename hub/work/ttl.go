// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	workv1alpha1 "open-cluster-management.io/api/work/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// expiryReconciler deletes ManifestWorks that are finished, once their time is over.
type expiryReconciler struct{ works *Works }

func (e expiryReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("work-expiry").
		For(&workv1.ManifestWork{}, builder.WithPredicates(predicate.NewPredicateFuncs(hasTTL))).
		// A work that finished in the meantime is looked at when its cluster is
		// ours again.
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(e.listRequests), builder.WithPredicates(acceptanceChanged())).
		Complete(e)
}

// hasTTL tells the works that are to go by themselves. Those of a
// ManifestWorkReplicaSet would only be made again.
func hasTTL(o client.Object) bool {
	work, ok := o.(*workv1.ManifestWork)
	if !ok || work.DeletionTimestamp != nil {
		return false
	}
	_, replicated := work.Labels[workv1alpha1.ManifestWorkReplicaSetControllerNameLabelKey]
	option := work.Spec.DeleteOption
	return !replicated && option != nil && option.TTLSecondsAfterFinished != nil
}

func (e expiryReconciler) listRequests(ctx context.Context, cluster client.Object) []ctrl.Request {
	var list workv1.ManifestWorkList
	// Nothing is changed, and of the list nothing but names stays.
	if err := e.works.client.List(ctx, &list, client.InNamespace(cluster.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		e.works.log.Error(err, "works that expire cannot be listed", "cluster", cluster.GetName())
		return nil
	}
	var out []ctrl.Request
	for i := range list.Items {
		if hasTTL(&list.Items[i]) {
			out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile deletes a work whose time is over, and comes back at that moment for
// one that is finished.
func (e expiryReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	managed, _, err := e.works.clusterState(ctx, req.Namespace)
	if err != nil || !managed {
		return ctrl.Result{}, err
	}
	var work workv1.ManifestWork
	if err := e.works.client.Get(ctx, req.NamespacedName, &work); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	rest, finished := remainingTTL(&work, time.Now())
	if !finished {
		return ctrl.Result{}, nil
	}
	if rest > 0 {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	// What was looked at is deleted, and nothing that it became since.
	err = e.works.client.Delete(ctx, &work, client.Preconditions{UID: &work.UID, ResourceVersion: &work.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return requeueOnConflict(fmt.Errorf("delete work: %w", err))
	}
	return ctrl.Result{}, nil
}

// remainingTTL is how long a work that is finished has left. One that is not, or that
// outlives every clock, is not finished.
func remainingTTL(work *workv1.ManifestWork, now time.Time) (rest time.Duration, finished bool) {
	if !hasTTL(work) {
		return 0, false
	}
	done := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
	seconds := *work.Spec.DeleteOption.TTLSecondsAfterFinished
	if done == nil || done.Status != metav1.ConditionTrue || seconds > math.MaxInt64/int64(time.Second) {
		return 0, false
	}
	end := done.LastTransitionTime.Add(time.Duration(max(seconds, 0)) * time.Second)
	return end.Sub(now), true
}
