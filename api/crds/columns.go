// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// addColumns gives ManifestWork what "kubectl get manifestworks" shows. OCM's
// file has no columns and stays as it is; they are no part of the contract.
func addColumns(obj *unstructured.Unstructured) error {
	versions, found, err := unstructured.NestedSlice(obj.Object, "spec", "versions")
	if err != nil {
		return err
	}
	if !found || len(versions) == 0 {
		return fmt.Errorf("%s has no versions", obj.GetName())
	}
	for i := range versions {
		version, ok := versions[i].(map[string]any)
		if !ok {
			return fmt.Errorf("version %d of %s is a %T", i, obj.GetName(), versions[i])
		}
		version["additionalPrinterColumns"] = columns()
	}
	return unstructured.SetNestedSlice(obj.Object, versions, "spec", "versions")
}

func columns() []any {
	return []any{
		conditionColumn("Applied", "Whether all manifests were applied"),
		conditionColumn("Available", "Whether all resources exist in the spoke"),
		conditionColumn("Complete", "Whether the work is finished, if a rule asks for it"),
		map[string]any{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
	}
}

func conditionColumn(name, description string) map[string]any {
	return map[string]any{
		"name": name, "type": "string", "description": description,
		"jsonPath": `.status.conditions[?(@.type=="` + name + `")].status`,
	}
}
