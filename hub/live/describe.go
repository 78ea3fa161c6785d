// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// gvkExtension names the kind that an operation is about.
const gvkExtension = "x-kubernetes-group-version-kind"

// describePatch adds to the document that ViewWorks cannot be patched. kubectl
// reads at the PATCH operation alone whether a server validates fields
// (k8s.io/cli-runtime, query_param_verifier_v3.go); without one it asks for the
// list of CRDs, which the callers of views need no right to.
func describePatch(doc *spec3.OpenAPI) (*spec3.OpenAPI, error) {
	for _, path := range doc.Paths.Paths {
		if path == nil || path.Post == nil || path.Patch != nil || !isViewWork(path.Post.Extensions) {
			continue
		}
		path.Patch = &spec3.Operation{
			VendorExtensible: path.Post.VendorExtensible,
			OperationProps: spec3.OperationProps{
				Description: "ViewWorks are not stored and cannot be patched.",
				OperationId: path.Post.OperationId + "NotPatched",
				Parameters:  slices.Clone(path.Post.Parameters),
				Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{
					StatusCodeResponses: map[int]*spec3.Response{
						405: {ResponseProps: spec3.ResponseProps{Description: "Method Not Allowed"}},
					},
				}},
			},
		}
	}
	return doc, nil
}

func isViewWork(extensions spec.Extensions) bool {
	var gvk map[string]string
	err := extensions.GetObject(gvkExtension, &gvk)
	return err == nil && gvk["group"] == livev1alpha1.GroupName && gvk["kind"] == "ViewWork"
}
