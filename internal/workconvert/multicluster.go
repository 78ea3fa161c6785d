// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// FromMulticluster is what an agent is asked for by a Work. It shares the
// manifests' bytes with it.
func FromMulticluster(w *v1alpha1.Work) wire.Work {
	out := wire.Work{Generation: w.Generation, Deleting: w.DeletionTimestamp != nil}
	setSuspensionAndDrift(&out, w.Annotations, w.Status.Conditions)
	if out.Deleting && !out.Suspended {
		return out
	}
	for _, m := range w.Spec.Workload.Manifests {
		out.Spec.Workload.Manifests = append(out.Spec.Workload.Manifests, workv1.Manifest{RawExtension: m.RawExtension})
	}
	return out
}

// MergeMulticluster returns the status of a Work after a report. What did not
// change keeps its transition time, whatever time the agent gives. The arguments
// are not changed.
func MergeMulticluster(old v1alpha1.WorkStatus, r wire.WorkStatus, now metav1.Time) v1alpha1.WorkStatus {
	kept := keepsAppliedCondition(r)
	work := conditionMerger{now: now, isObsolete: func(c metav1.Condition) bool {
		return isReportedCondition(c) && (!kept || c.Type != workv1.WorkApplied)
	}}
	manifest := conditionMerger{now: now, isObsolete: func(c metav1.Condition) bool { return !kept || c.Type != workv1.ManifestApplied }}
	next := v1alpha1.WorkStatus{Conditions: work.merge(old.Conditions, r.Conditions)}
	before := newManifestIndex(old.ManifestConditions, identifierOf, identifierWithoutOrdinal)
	for _, m := range r.Manifests {
		id := newIdentifier(m.ResourceMeta)
		next.ManifestConditions = append(next.ManifestConditions, v1alpha1.ManifestCondition{
			Identifier: id, Conditions: manifest.merge(before.find(id).Conditions, m.Conditions),
		})
	}
	return next
}

// isReportedCondition tells the conditions of a Work that an agent reports from
// those that are somebody else's.
func isReportedCondition(c metav1.Condition) bool {
	switch c.Type {
	case workv1.WorkApplied, workv1.WorkAvailable, TypeHealthy, TypeSharedResources, workv1.WorkDeleting:
		return true
	default:
		return isSuspension(c) || wire.IsDriftReport(c)
	}
}

func newIdentifier(m workv1.ManifestResourceMeta) v1alpha1.ResourceIdentifier {
	return v1alpha1.ResourceIdentifier{
		Ordinal: int(m.Ordinal), Group: m.Group, Version: m.Version, Kind: m.Kind,
		Resource: m.Resource, Namespace: m.Namespace, Name: m.Name,
	}
}

func identifierOf(m v1alpha1.ManifestCondition) v1alpha1.ResourceIdentifier { return m.Identifier }

func identifierWithoutOrdinal(id v1alpha1.ResourceIdentifier) v1alpha1.ResourceIdentifier {
	id.Ordinal = 0
	return id
}
