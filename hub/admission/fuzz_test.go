// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Whatever is sent: no panic, and what passes has manifests with names, or the
// spec that it had before.
func FuzzReview(f *testing.F) {
	review := func(operation, before, after string) []byte {
		if before != "" {
			before = `"oldObject":` + before + `,`
		}
		return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","namespace":"store-1",` +
			`"resource":{"group":"work.open-cluster-management.io","version":"v1","resource":"manifestworks"},` +
			`"operation":"` + operation + `",` + before + `"object":` + after + `}}`)
	}
	f.Add(review("CREATE", "", object("", configMap, deployment)))
	f.Add(review("UPDATE", object(roleOfBob, configMap), object(roleOfBob, other)))
	f.Add(review("UPDATE", object("", configMap), object(roleOfEve, configMap)))
	f.Add(review("CREATE", "", `{"spec":{"workload":{"manifests":[{"metadata":{"name":"a","NAME":"b"},"Kind":"x"}]}}}`))
	f.Add(review("CREATE", "", `{"spec":{"workload":{"manifests":[[[[[]]]]]},"workload":{"manifests":null}}}`))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := readReview(bytes.NewReader(body))
		if err != nil {
			return
		}
		j := &judge{access: &rights{}, limit: 4096}
		if j.every(t.Context(), request) != nil {
			return
		}
		before, after, err := specs(request)
		if err != nil {
			t.Fatalf("what cannot be read passed: %v", err)
		}
		if request.Operation == admissionv1.Update && bytes.Equal(before, after) {
			return
		}
		next, err := decodeSpec(after, 4096)
		if err != nil || len(next.Workload.Manifests.kept) == 0 || next.Workload.Manifests.size > 4096 {
			t.Fatalf("a spec passed that breaks the rules: %v: %s", err, after)
		}
		if next.Executor != nil && (request.Operation != admissionv1.Update || !sameExecutor(before, next)) {
			t.Fatalf("an executor passed without the right: %s", after)
		}
		for _, raw := range next.Workload.Manifests.kept {
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON(raw); err != nil || obj.GetName() == "" || obj.GetGenerateName() != "" {
				t.Fatalf("a manifest passed that breaks the rules: %v: %s", err, raw)
			}
		}
	})
}
