// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/cached"
)

// workSets are the resource whose actions are in a template.
var workSets = metav1.GroupResource{Group: mcmv1alpha1.GroupVersion.Group, Resource: "worksets"}

// specTemplates are the parts of a spec that the hub's cache does not keep when they are large.
type specTemplates struct {
	Kube struct {
		Template rawJSON `json:"template"`
	} `json:"kube"`
	Helm struct {
		Values rawJSON `json:"values"`
	} `json:"helm"`
}

// checkLimits refuses a spec that is too large, and one for which a namespace has no room: of all
// objects the hub keeps something, and reads all of them when it starts. That holds for the
// hub's own account, too, which makes a Work in each cluster for a WorkSet.
func (c *requesterRecorder) checkLimits(ctx context.Context, r *reviewRequest, spec, last rawJSON) error {
	if len(spec) > c.limits.Spec {
		return newForbidden(r, "the spec has %d bytes, more than %d (mcm.specLimit of the hub)", len(spec), c.limits.Spec)
	}
	beside, err := sizeWithoutTemplates(groupResource(r), spec)
	if err != nil {
		return err
	}
	if beside > cached.MaxSpec {
		return newForbidden(r, "the spec has %d bytes beside its template, more than %d", beside, cached.MaxSpec)
	}
	more := len(spec) - len(last)
	if r.Operation == admissionv1.Update && more <= 0 {
		return nil
	}
	has, err := c.usage.Usage(ctx, groupResource(r), r.Namespace)
	if err != nil {
		return fmt.Errorf("%w: what namespace %q holds: %w", errInternal, r.Namespace, err)
	}
	most := c.limits.Namespace
	switch {
	case r.Operation == admissionv1.Create && has.Objects >= most.Objects:
		return newForbidden(r, "namespace %q has %d of them, and may have %d (mcm.namespaceObjects of the hub)", r.Namespace, has.Objects, most.Objects)
	case has.Bytes+int64(more) > most.Bytes:
		return newForbidden(r, "namespace %q has %d bytes of their templates, and may have %d with %d more (mcm.namespaceBytes of the hub)",
			r.Namespace, has.Bytes, most.Bytes, more)
	}
	return nil
}

// sizeWithoutTemplates is how many bytes of a spec are none of a template.
func sizeWithoutTemplates(resource metav1.GroupResource, spec rawJSON) (int, error) {
	var of specTemplates
	var set struct {
		Template struct {
			Spec specTemplates `json:"spec"`
		} `json:"template"`
	}
	ok := resource == workSets && spec.decode(&set) || resource != workSets && spec.decode(&of)
	if !ok {
		return 0, fmt.Errorf("%w: the spec cannot be read", errInternal)
	}
	if resource == workSets {
		of = set.Template.Spec
	}
	return len(spec) - len(of.Kube.Template) - len(of.Helm.Values), nil
}

func newForbidden(r *reviewRequest, format string, args ...any) error {
	return apierrors.NewForbidden(schema.GroupResource(groupResource(r)), r.Name, fmt.Errorf(format, args...))
}
