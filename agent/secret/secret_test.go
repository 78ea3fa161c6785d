// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

func TestMaskHidesValues(t *testing.T) {
	cases := map[string]struct {
		reason   string
		in, want string
	}{
		"a Secret": {
			reason: "keys stay, values go, wherever they are",
			in: `{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"a","annotations":{
				"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"k\":\"dg==\"}}","b":"c"}},
				"data":{"k":"dg=="},"stringData":{"l":"w"}}`,
			want: `{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"a","annotations":{"b":"c"}},
				"data":{"k":"***"},"stringData":{"l":"***"}}`,
		},
		"no annotation is left": {
			reason: "an object without annotations has no such field",
			in:     `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`,
			want:   `{"apiVersion":"v1","kind":"Secret","metadata":{}}`,
		},
		"an annotation that is no text": {
			reason: "what the API server would refuse hides nothing either",
			in:     `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":{"k":"dg=="},"b":1}}}`,
			want:   `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"b":1}}}`,
		},
		"data that is no map": {
			reason: "what is not understood is hidden",
			in:     `{"apiVersion":"v1","kind":"Secret","data":["dg=="]}`,
			want:   `{"apiVersion":"v1","kind":"Secret","data":"***"}`,
		},
		"a List": {
			reason: "kubectl and templates put objects of several kinds into one",
			in: `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","data":{"k":"dg=="}},
				{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","data":{"k":"dg=="}}]},
				{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}},"text"]}`,
			want: `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","data":{"k":"***"}},
				{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","data":{"k":"***"}}]},
				{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}},"text"]}`,
		},
		"a SecretList": {
			reason: "the API server names the kind once, for the list",
			in:     `{"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"k":"dg=="}}]}`,
			want:   `{"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"a"},"data":{"k":"***"}}]}`,
		},
		"a ConfigMap": {
			reason: "its values are no secret",
			in:     `{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}}`,
			want:   `{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}}`,
		},
		"a Secret of another group": {
			reason: "it is another kind",
			in:     `{"apiVersion":"a.b/v1","kind":"Secret","data":{"k":"v"}}`,
			want:   `{"apiVersion":"a.b/v1","kind":"Secret","data":{"k":"v"}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decode(t, tc.in)
			Mask(&unstructured.Unstructured{Object: got})
			if diff := cmp.Diff(decode(t, tc.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIsSecret(t *testing.T) {
	if !IsSecret(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}) || IsSecret(schema.GroupVersionResource{Group: "a.b", Version: "v1", Resource: "secrets"}) {
		t.Error("secrets of another group count, or the core group's do not")
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}
