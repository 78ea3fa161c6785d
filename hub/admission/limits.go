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

// templates are the parts of a spec that the hub's cache does not keep when they are large.
type templates struct {
	Kube struct {
		Template raw `json:"template"`
	} `json:"kube"`
	Helm struct {
		Values raw `json:"values"`
	} `json:"helm"`
}

// fits refuses a spec that is too large, and one for which a namespace has no room: of all
// objects the hub keeps something, and reads all of them when it starts. That holds for the
// hub's own account, too, which makes a Work in each cluster for a WorkSet.
func (c *recorder) fits(ctx context.Context, r *request, spec, last raw) error {
	if len(spec) > c.limits.Spec {
		return refuse(r, "the spec has %d bytes, more than %d (mcm.specLimit of the hub)", len(spec), c.limits.Spec)
	}
	beside, err := besideTemplates(resourceOf(r), spec)
	if err != nil {
		return err
	}
	if beside > cached.MaxSpec {
		return refuse(r, "the spec has %d bytes beside its template, more than %d", beside, cached.MaxSpec)
	}
	more := len(spec) - len(last)
	if r.Operation == admissionv1.Update && more <= 0 {
		return nil
	}
	has, err := c.stored.Usage(ctx, resourceOf(r), r.Namespace)
	if err != nil {
		return fmt.Errorf("%w: what namespace %q holds: %w", errUndecided, r.Namespace, err)
	}
	most := c.limits.Namespace
	switch {
	case r.Operation == admissionv1.Create && has.Objects >= most.Objects:
		return refuse(r, "namespace %q has %d of them, and may have %d (mcm.namespaceObjects of the hub)", r.Namespace, has.Objects, most.Objects)
	case has.Bytes+int64(more) > most.Bytes:
		return refuse(r, "namespace %q has %d bytes of their templates, and may have %d with %d more (mcm.namespaceBytes of the hub)",
			r.Namespace, has.Bytes, most.Bytes, more)
	}
	return nil
}

// besideTemplates is how many bytes of a spec are none of a template.
func besideTemplates(resource metav1.GroupResource, spec raw) (int, error) {
	var of templates
	var set struct {
		Template struct {
			Spec templates `json:"spec"`
		} `json:"template"`
	}
	ok := resource == workSets && spec.decode(&set) || resource != workSets && spec.decode(&of)
	if !ok {
		return 0, fmt.Errorf("%w: the spec cannot be read", errUndecided)
	}
	if resource == workSets {
		of = set.Template.Spec
	}
	return len(spec) - len(of.Kube.Template) - len(of.Helm.Values), nil
}

func refuse(r *request, format string, args ...any) error {
	return apierrors.NewForbidden(schema.GroupResource(resourceOf(r)), r.Name, fmt.Errorf(format, args...))
}
