// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package managedcluster says what the record of a cluster, a ManagedCluster, says: that
// it is Spokelet's, that the hub accepts it, and that it is being detached.
//
// Whoever makes something for a cluster asks here, so that all agree. It is pure functions
// of the record.
package managedcluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

const (
	// AnnotationManaged is "true" on the records that are Spokelet's.
	AnnotationManaged = "spokelet.io/managed"
	// AnnotationClusterID is the random UUID that certificates of the cluster
	// name. Set once; one that is present at creation is kept, which is how a
	// record is restored from a backup.
	AnnotationClusterID = "spokelet.io/cluster-id"

	// TaintDetaching is the key of the taint that "kubectl spokelet detach" puts on a
	// record before anything else: from then on nothing new is made for the cluster. Its
	// effect is NoSelect, which the Placements of Open Cluster Management respect.
	TaintDetaching = "spokelet.io/detaching"
	// LabelDetaching is "true" on the namespace of a cluster whose record has the taint,
	// and there by the hub: the API server then refuses new works, views and actions.
	LabelDetaching = TaintDetaching
	// ConditionDetaching is True once the namespace has the label.
	ConditionDetaching = "spokelet.io/Detaching"
	// ReasonInvalidName is the reason of HubAcceptedManagedCluster for a record that the hub
	// does not serve for its name: nothing was made for it, and its namespace is not its own.
	ReasonInvalidName = "InvalidName"
)

// IsManaged tells whether a record is Spokelet's.
func IsManaged(record *clusterv1.ManagedCluster) bool {
	return record.Annotations[AnnotationManaged] == "true"
}

// IsAccepted tells whether the hub serves a cluster: the record is Spokelet's, accepted, and
// not being deleted.
func IsAccepted(record *clusterv1.ManagedCluster) bool {
	return IsManaged(record) && record.Spec.HubAcceptsClient && record.DeletionTimestamp.IsZero()
}

// IsSelectable tells whether something new may be made for a cluster.
func IsSelectable(record *clusterv1.ManagedCluster) bool {
	return IsAccepted(record) && !IsDetaching(record)
}

// IsDetaching tells whether a cluster is being detached.
func IsDetaching(record *clusterv1.ManagedCluster) bool {
	for _, taint := range record.Spec.Taints {
		if taint.Key == TaintDetaching {
			return true
		}
	}
	return false
}

// MarkDetaching marks a record as being detached since a time. It leaves an earlier mark as it is.
func MarkDetaching(record *clusterv1.ManagedCluster, now time.Time) {
	if IsDetaching(record) {
		return
	}
	record.Spec.Taints = append(record.Spec.Taints, clusterv1.Taint{
		Key: TaintDetaching, Effect: clusterv1.TaintEffectNoSelect, TimeAdded: metav1.NewTime(now),
	})
}

// UnmarkDetaching takes the mark of Detach away.
func UnmarkDetaching(record *clusterv1.ManagedCluster) {
	var taints []clusterv1.Taint
	for _, taint := range record.Spec.Taints {
		if taint.Key != TaintDetaching {
			taints = append(taints, taint)
		}
	}
	record.Spec.Taints = taints
}
