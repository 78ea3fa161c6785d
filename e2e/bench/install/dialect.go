// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// dialect is one kind of work, with how it shows what happens in the spoke.
type dialect struct {
	prefix   string // of its figures
	short    string // before the names of its works and objects
	kind     string
	resource schema.GroupVersionResource
	// config is how it asks for the status of widgets; nil where it need not ask.
	config []any
	// status of a widget, the i-th that it gets.
	status func(i int) string
	// tells whether a work shows that status.
	tells func(e watch.Event, i int) bool
}

// manifestWork tells by a feedback rule.
func manifestWork() dialect {
	return dialect{
		kind:     "ManifestWork",
		resource: schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"},
		config: []any{map[string]any{
			"resourceIdentifier": map[string]any{"group": "bench.spokelet.io", "resource": "widgets", "namespace": "bench", "name": "*"},
			"feedbackRules": []any{map[string]any{
				"type": "JSONPaths", "jsonPaths": []any{map[string]any{"name": "round", "path": ".status.round"}},
			}},
		}},
		status: func(i int) string { return fmt.Sprintf(`{"status":{"round":%d}}`, i) },
		tells:  func(e watch.Event, i int) bool { return feedback(e, "round") == int64(i) },
	}
}

// multicluster tells by its health.
func multicluster() dialect {
	ready := func(i int) string { return []string{"True", "False"}[i%2] }
	return dialect{
		prefix: "mc.", short: "mc-", kind: "Work",
		resource: schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "works"},
		status: func(i int) string {
			return fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Bench","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, ready(i))
		},
		tells: func(e watch.Event, i int) bool { return hasCondition(e, "Healthy", ready(i)) },
	}
}

// on are the works of the spoke.
func (d dialect) on(hub *site) dynamic.ResourceInterface {
	return hub.dyn.Resource(d.resource).Namespace(spokeName)
}

func (d dialect) work(name string, manifest map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": d.resource.GroupVersion().String(), "kind": d.kind,
		"metadata": map[string]any{"name": name, "namespace": spokeName},
		"spec":     map[string]any{"workload": map[string]any{"manifests": []any{manifest}}},
	}}
}

// feedback is the integer that a ManifestWork reports of its one manifest, nil if
// it does not.
func feedback(e watch.Event, name string) any {
	obj, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	manifests, _, _ := unstructured.NestedSlice(obj.Object, "status", "resourceStatus", "manifests")
	for _, manifest := range manifests {
		m, ok := manifest.(map[string]any)
		if !ok {
			continue
		}
		values, _, _ := unstructured.NestedSlice(m, "statusFeedback", "values")
		for _, value := range values {
			if v, ok := value.(map[string]any); ok && v["name"] == name {
				integer, _, _ := unstructured.NestedFieldNoCopy(v, "fieldValue", "integer")
				return integer
			}
		}
	}
	return nil
}
