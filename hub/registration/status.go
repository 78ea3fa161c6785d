// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/managedcluster"
)

// writeStatus writes the status that the record should have, if it has another.
func (r *Reconciler) writeStatus(ctx context.Context, record *clusterv1.ManagedCluster, known observed, grace bool) error {
	return r.patchStatus(ctx, record, func() { applyStatus(record, known, grace) })
}

func (r *Reconciler) reportInvalid(ctx context.Context, record *clusterv1.ManagedCluster, reason string, cause error) error {
	return r.patchStatus(ctx, record, func() {
		meta.SetStatusCondition(&record.Status.Conditions, metav1.Condition{
			Type:    clusterv1.ManagedClusterConditionHubAccepted,
			Status:  metav1.ConditionFalse,
			Reason:  reason,
			Message: fmt.Sprintf(messageInvalidRecord, cause),
		})
	})
}

func (r *Reconciler) patchStatus(ctx context.Context, record *clusterv1.ManagedCluster, change func()) error {
	before := record.DeepCopy()
	change()
	if equality.Semantic.DeepEqual(before.Status, record.Status) {
		return nil
	}
	r.chargeWrite(record)
	// The lock is for the list of conditions: a merge patch replaces it whole,
	// and other controllers keep conditions of their own there.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return r.config.Client.Status().Patch(ctx, record, patch)
}

// applyStatus changes the record's status to what follows from its spec and from
// what is known. It does no I/O. During the grace after the hub's start a
// cluster without a session keeps its conditions.
func applyStatus(record *clusterv1.ManagedCluster, known observed, grace bool) {
	conditions := &record.Status.Conditions
	for _, condition := range []*metav1.Condition{
		acceptedCondition(record), joinedCondition(known), availableCondition(record, known, grace), conflictCondition(known), detachingCondition(record),
	} {
		if condition != nil {
			meta.SetStatusCondition(conditions, *condition)
		}
	}
	if !managedcluster.IsDetaching(record) {
		meta.RemoveStatusCondition(conditions, managedcluster.ConditionDetaching)
	}
	if known.isResolved {
		meta.RemoveStatusCondition(conditions, ConditionIdentityConflict)
	}
	if known.summary != nil {
		record.Status.Version.Kubernetes = known.summary.KubernetesVersion
		record.Status.Capacity = convertResources(known.summary.Capacity)
		record.Status.Allocatable = convertResources(known.summary.Allocatable)
	}
}

// acceptedCondition follows OCM: a cluster that was never accepted has no such condition,
// one that was accepted before is denied.
func acceptedCondition(record *clusterv1.ManagedCluster) *metav1.Condition {
	if record.Spec.HubAcceptsClient {
		return &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionTrue,
			Reason: ReasonAccepted, Message: messageAccepted,
		}
	}
	if meta.FindStatusCondition(record.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted) == nil {
		return nil
	}
	return &metav1.Condition{
		Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionFalse,
		Reason: ReasonDenied, Message: messageDenied,
	}
}

// joinedCondition is never removed: it means that the cluster has connected once.
func joinedCondition(known observed) *metav1.Condition {
	if known.session == nil {
		return nil
	}
	return &metav1.Condition{
		Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue,
		Reason: ReasonJoined, Message: messageJoined,
	}
}

func availableCondition(record *clusterv1.ManagedCluster, known observed, grace bool) *metav1.Condition {
	if known.session != nil {
		return &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue,
			Reason: ReasonAvailable, Message: messageAvailable,
		}
	}
	if grace || !meta.IsStatusConditionTrue(record.Status.Conditions, clusterv1.ManagedClusterConditionJoined) {
		return nil
	}
	// Why the session ended is not part of the message: two cuts of one outage
	// would be two writes.
	return &metav1.Condition{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionUnknown,
		Reason: ReasonDisconnected, Message: messageDisconnected,
	}
}

func conflictCondition(known observed) *metav1.Condition {
	if !known.hasConflict {
		return nil
	}
	return &metav1.Condition{
		Type: ConditionIdentityConflict, Status: metav1.ConditionTrue, Reason: ReasonUIDMismatch,
		Message: messageConflict,
	}
}

// detachingCondition confirms the taint: the status is written after the namespace.
func detachingCondition(record *clusterv1.ManagedCluster) *metav1.Condition {
	if !managedcluster.IsDetaching(record) {
		return nil
	}
	return &metav1.Condition{
		Type: managedcluster.ConditionDetaching, Status: metav1.ConditionTrue, Reason: ReasonDetaching,
		Message: messageDetaching,
	}
}

func convertResources(list corev1.ResourceList) clusterv1.ResourceList {
	if list == nil {
		return nil
	}
	out := make(clusterv1.ResourceList, len(list))
	for name, quantity := range list {
		out[clusterv1.ResourceName(name)] = quantity
	}
	return out
}
