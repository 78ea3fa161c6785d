// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestContentionNamesFieldAndManager(t *testing.T) {
	manifest := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"a": "1"}},
		"spec":     map[string]any{"replicas": int64(1), "containers": []any{map[string]any{"name": "c"}}},
	}
	earlier, later := &metav1.Time{Time: time.Unix(1, 0)}, &metav1.Time{Time: time.Unix(2, 0)}
	entry := func(manager, subresource, set string, at *metav1.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(set), Time: at}
	}
	tests := map[string]struct {
		reason string
		fields []metav1.ManagedFieldsEntry
		want   string
	}{
		"a field": {
			reason: "both want it", want: `spec.replicas is also written by "hpa"`,
			fields: []metav1.ManagedFieldsEntry{entry("hpa", "", `{"f:spec":{"f:other":{},"f:replicas":{}}}`, later)},
		},
		"an annotation": {
			reason: "the one is named", want: `metadata.annotations.a is also written by "c"`,
			fields: []metav1.ManagedFieldsEntry{entry("c", "", `{"f:metadata":{"f:annotations":{".":{},"f:a":{}}}}`, later)},
		},
		"an item of a list": {
			reason: "the list is", want: `spec.containers is also written by "c"`,
			fields: []metav1.ManagedFieldsEntry{entry("c", "", `{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{"f:image":{}}}}}`, later)},
		},
		"a scale": {
			reason: "a subresource may write what a manifest has", want: `spec.replicas is also written by "kubectl"`,
			fields: []metav1.ManagedFieldsEntry{entry("kubectl", "scale", `{"f:spec":{"f:replicas":{}}}`, later)},
		},
		"two": {
			reason: "the one who wrote last", want: `spec.replicas is also written by "second"`,
			fields: []metav1.ManagedFieldsEntry{entry("first", "", `{"f:spec":{"f:replicas":{}}}`, earlier), entry("second", "", `{"f:spec":{"f:replicas":{}}}`, later)},
		},
		"nobody":        {reason: "who takes a field away leaves no trace", want: "somebody changes it each time"},
		"other fields":  {reason: "they are not what is fought for", want: "somebody changes it each time", fields: []metav1.ManagedFieldsEntry{entry("c", "", `{"f:data":{}}`, later)}},
		"ourselves":     {reason: "we repair", want: "somebody changes it each time", fields: []metav1.ManagedFieldsEntry{entry("work-agent", "", `{"f:spec":{"f:replicas":{}}}`, later)}},
		"a status":      {reason: "no manifest has one", want: "somebody changes it each time", fields: []metav1.ManagedFieldsEntry{entry("c", "status", `{"f:spec":{"f:replicas":{}}}`, later)}},
		"no fields set": {reason: "it does not say", want: "somebody changes it each time", fields: []metav1.ManagedFieldsEntry{entry("c", "", `[]`, later)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := contentionText(tc.fields, manifest); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
