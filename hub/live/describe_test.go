// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func TestOpenAPIShowsFieldValidationOfViewWorks(t *testing.T) {
	post := func(kind string) *spec3.Path {
		op := &spec3.Operation{OperationProps: spec3.OperationProps{
			Parameters: []*spec3.Parameter{{ParameterProps: spec3.ParameterProps{Name: "fieldValidation", In: "query"}}},
		}}
		op.Extensions = spec.Extensions{gvkExtension: map[string]any{"group": "live.spokelet.io", "version": "v1alpha1", "kind": kind}}
		return &spec3.Path{PathProps: spec3.PathProps{Post: op}}
	}
	doc := &spec3.OpenAPI{Paths: &spec3.Paths{Paths: map[string]*spec3.Path{
		"/viewworks": post("ViewWork"), "/others": post("Other"), "/none": nil,
	}}}
	if _, err := describePatch(doc); err != nil {
		t.Fatal(err)
	}
	patch := doc.Paths.Paths["/viewworks"].Patch
	if patch == nil || len(patch.Parameters) != 1 || patch.Parameters[0].Name != "fieldValidation" || !isViewWork(patch.Extensions) {
		t.Errorf("kubectl reads the parameter at the PATCH operation of the kind, got %+v", patch)
	}
	if doc.Paths.Paths["/others"].Patch != nil {
		t.Error("what is not a view is left alone")
	}
}
