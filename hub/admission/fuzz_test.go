// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	f.Add(bytes.Replace(bytes.Replace(review("UPDATE", object("", configMap), object("", other)),
		[]byte("work.open-cluster-management.io"), []byte("multicluster.x-k8s.io"), 1), []byte(`"v1","resource":"manifestworks"`), []byte(`"v1alpha1","resource":"works"`), 1))
	f.Add(review("CREATE", "", `{"spec":{"workload":{"manifests":[ {"a":"],{\"\\"} , [[],{}],"]" ]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := readReview(body, nil)
		if err != nil {
			return
		}
		j := &validator{access: &rights{}, limit: 4096, nilExecutor: true}
		before, after, unread := decodeSpecs(request)
		list := manifestsOf(t, after)
		if j.validate(t.Context(), request) == nil && (unread != nil || request.Operation != admissionv1.Update || !bytes.Equal(before, after)) {
			t.Fatalf("a spec passed that is new, without the right: %v: %s", unread, after)
		}
		if unread != nil || request.Resource != manifestWorks {
			return
		}
		j.access = &rights{allowed: true}
		if j.validate(t.Context(), request) != nil || request.Operation == admissionv1.Update && bytes.Equal(before, after) {
			return
		}
		if len(list) == 0 {
			t.Fatalf("a spec without manifests passed: %s", after)
		}
		for _, manifest := range list {
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON(manifest); err != nil || obj.GetName() == "" || obj.GetGenerateName() != "" {
				t.Fatalf("a manifest passed that breaks the rules: %v: %s", err, manifest)
			}
		}
	})
}

// manifestsOf reads the manifests of a spec as any client would, and compares what
// elements makes of them.
func manifestsOf(t *testing.T, of rawJSON) []json.RawMessage {
	t.Helper()
	var shared spec
	var copied struct {
		Workload struct {
			Manifests []json.RawMessage `json:"manifests"`
		} `json:"workload"`
	}
	if of.isAbsent() || !of.decode(&shared) || !of.decode(&copied) {
		return nil
	}
	var got []json.RawMessage
	for manifest := range listElements(shared.Workload.Manifests) {
		got = append(got, json.RawMessage(manifest))
	}
	if diff := cmp.Diff(copied.Workload.Manifests, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("elements (-want +got):\n%s", diff)
	}
	return got
}
