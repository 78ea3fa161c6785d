// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// addBeta serves the one version of a definition as v1beta1, too: the original was
// published again under that name, with the same types. Nothing is converted.
func addBeta(obj *unstructured.Unstructured) error {
	versions, found, err := unstructured.NestedSlice(obj.Object, "spec", "versions")
	if err != nil {
		return err
	}
	if !found || len(versions) != 1 {
		return fmt.Errorf("%s has %d versions, want one", obj.GetName(), len(versions))
	}
	alpha, ok := versions[0].(map[string]any)
	if !ok {
		return fmt.Errorf("version of %s is a %T", obj.GetName(), versions[0])
	}
	beta := runtime.DeepCopyJSON(alpha)
	beta["name"], beta["storage"] = "v1beta1", false
	return unstructured.SetNestedSlice(obj.Object, append(versions, beta), "spec", "versions")
}
