// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/cached"
	"github.com/spokelet/spokelet/hub/mcm"
	"github.com/spokelet/spokelet/hub/requester"
)

// largeWriters is how many Works of one parent are written together that have a template
// which is not kept.
const largeWriters = 2

// Strip takes from a WorkSet or a ResourceView what the hub does not read, and what is too
// large to be kept, before its cache keeps it. It is a cache.TransformFunc, which may change
// what it is given.
func Strip(in any) (any, error) {
	obj, ok := in.(client.Object)
	if !ok || cached.Seen(obj) {
		return in, nil
	}
	switch o := obj.(type) {
	case *v1alpha1.WorkSet:
		o.Status, o.Spec.Selector, o.Spec.Template.Spec.Cluster = v1alpha1.WorkSetStatus{}, nil, nil
		mcm.StripTemplates(o.Spec.Template.Spec.KubeWork, o.Spec.Template.Spec.HelmWork)
		if cached.Size(&o.Spec) > cached.MaxKept {
			o.Spec = v1alpha1.WorkSetSpec{ClusterSelector: unmatchableSelector()}
		}
	case *v1alpha1.ResourceView:
		o.Status = v1alpha1.ResourceViewStatus{}
		if cached.Size(&o.Spec) > cached.MaxKept {
			o.Spec = v1alpha1.ResourceViewSpec{ClusterSelector: unmatchableSelector()}
		}
	}
	delete(obj.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	cached.Metadata(obj, requester.MCM.All())
	return obj, nil
}

// unmatchableSelector stands for the selector of a spec that is not kept, and is none: the webhook was
// not asked about it.
func unmatchableSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "spec", Operator: metav1.LabelSelectorOperator(fmt.Sprintf("of more than %d bytes beside its template", cached.MaxSpec)),
	}}}
}

// isStripped reports whether the template of a parent is not in the cache.
func (p parent) isStripped() bool { return mcm.TemplateSize(p.spec.KubeWork, p.spec.HelmWork) > 0 }

// getWithTemplate is a parent as the API server has it.
func (k *reconciler) getWithTemplate(ctx context.Context, p parent) (parent, error) {
	obj := k.newObject()
	if err := cached.Read(ctx, k.cfg.Live, p.object, obj); err != nil {
		return parent{}, fmt.Errorf("get template of %s %s: %w", p.kind, p.object.GetName(), err)
	}
	return k.newParent(obj), nil
}
