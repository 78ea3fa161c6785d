// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

// parent is a WorkSet or a ResourceView.
type parent struct {
	object client.Object
	kind   string
	// label is the one that names it on its Works, prefix is before its name in theirs.
	label, prefix string
	selector      *metav1.LabelSelector
	// labels and annotations are those that its Works have beside their own.
	labels, annotations map[string]string
	// spec is that of its Works, but for their cluster.
	spec v1alpha1.WorkSpec
	// observed is the status as it is stored, but for results and times.
	observed summary
	// status is what is stored of a summary, but for results.
	status func(s summary, now metav1.Time) any
	// stored is what is stored beside the status.
	stored []any
	// hasResults: what the Works show is in the status, too.
	hasResults bool
}

const (
	kindWorkSet      = "WorkSet"
	kindResourceView = "ResourceView"
)

func newWorkSetParent(s *v1alpha1.WorkSet) parent {
	t := &s.Spec.Template
	return parent{
		object: s, kind: kindWorkSet, label: v1alpha1.LabelWorkSet, stored: []any{&s.ObjectMeta, &s.Spec},
		selector: s.Spec.ClusterSelector, labels: t.Labels, annotations: t.Annotations, spec: t.Spec.For(""),
		observed: summary{
			kind: s.Status.Status, reason: s.Status.Reason,
			clusters: s.Status.Clusters, forbidden: s.Status.Forbidden, generation: s.Status.ObservedGeneration,
		},
		status: func(s summary, _ metav1.Time) any {
			return v1alpha1.WorkSetStatus{Status: s.kind, Reason: s.reason, Clusters: s.clusters, Forbidden: s.forbidden, ObservedGeneration: s.generation}
		},
	}
}

func newResourceViewParent(v *v1alpha1.ResourceView) parent {
	s := v.Spec.Scope
	p := parent{
		object: v, kind: kindResourceView, label: v1alpha1.LabelResourceView, prefix: "view-", stored: []any{&v.ObjectMeta, &v.Spec},
		selector: v.Spec.ClusterSelector, hasResults: true,
		spec: v1alpha1.WorkSpec{Type: v1alpha1.ResourceWorkType, Scope: v1alpha1.ResourceFilter{
			LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector, APIGroup: s.APIGroup,
			ResourceType: s.Resource, Name: s.ResourceName, NameSpace: s.NameSpace,
			ServerPrint: v.Spec.SummaryOnly, Mode: v.Spec.Mode, UpdateIntervalSeconds: v.Spec.UpdateIntervalSeconds,
		}},
		observed: summary{clusters: v.Status.Clusters, forbidden: v.Status.Forbidden, generation: v.Status.ObservedGeneration},
		status: func(s summary, now metav1.Time) any {
			return v1alpha1.ResourceViewStatus{
				Conditions: []v1alpha1.ViewCondition{{Type: s.kind, Status: metav1.ConditionTrue, LastUpdateTime: now, Reason: s.reason}},
				Clusters:   s.clusters, Forbidden: s.forbidden, ObservedGeneration: s.generation,
			}
		},
	}
	if p.selector == nil { // as in the original; a view changes nothing
		p.selector = &metav1.LabelSelector{}
	}
	if len(v.Status.Conditions) > 0 {
		p.observed.kind, p.observed.reason = v.Status.Conditions[0].Type, v.Status.Conditions[0].Reason
	}
	return p
}

// specFor is that of the Work for one cluster.
func (p parent) specFor(cluster string) v1alpha1.WorkSpec {
	spec := p.spec
	spec.Cluster.Name = cluster
	return spec
}
