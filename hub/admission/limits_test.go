// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/cached"
)

// A namespace holds something of each object in the hub's memory.
func TestMutateEnforcesNamespaceLimits(t *testing.T) {
	large, huge := strings.Repeat("x", cached.MaxSpec), strings.Repeat("x", 64<<10)
	set := func(kube, selector string) string {
		return `{"metadata":{},"spec":{"clusterSelector":{"matchLabels":{"a":"` + selector + `"}},"template":{"spec":{"kube":{"template":{"a":"` + kube + `"}}}}}}`
	}
	values := func(text string) string {
		return `{"spec":{"cluster":{"name":"store-1"},"helm":{"values":"` + text + `"}}}`
	}
	limits := Limits{Spec: 48 << 10, Namespace: Usage{Objects: 3, Bytes: 100 << 10}}
	cases := map[string]struct {
		reason      string
		resource    string
		user        string
		has         Usage
		err         error
		object, old string
		want        string
	}{
		"a template":                {reason: "it is not kept", resource: "worksets", object: set(large, "b")},
		"values":                    {reason: "nor are they", resource: "works", object: values(large)},
		"a spec beyond the limit":   {reason: "it would be read whole", resource: "worksets", object: set(huge, "b"), want: `worksets.mcm.ibm.com "a" is forbidden: the spec has 65632 bytes, more than 49152 (mcm.specLimit of the hub)`},
		"a large selector":          {reason: "it is kept", resource: "worksets", object: set("", large), want: `worksets.mcm.ibm.com "a" is forbidden: the spec has 8279 bytes beside its template, more than 8192`},
		"one more than there may":   {reason: "each is kept", resource: "works", has: Usage{Objects: 3}, object: workOfNone, want: `works.mcm.ibm.com "a" is forbidden: namespace "store-1" has 3 of them, and may have 3 (mcm.namespaceObjects of the hub)`},
		"one of the hub":            {reason: "a WorkSet makes one in each cluster", resource: "works", user: self, has: Usage{Objects: 3}, object: workOfNone, want: `works.mcm.ibm.com "a" is forbidden: namespace "store-1" has 3 of them, and may have 3 (mcm.namespaceObjects of the hub)`},
		"more bytes than there may": {reason: "all are read at a start", resource: "works", has: Usage{Bytes: 96 << 10}, object: values(large), want: `works.mcm.ibm.com "a" is forbidden: namespace "store-1" has 98304 bytes of their templates, and may have 102400 with 8243 more (mcm.namespaceBytes of the hub)`},
		"a change that adds":        {reason: "small ones would grow", resource: "works", has: Usage{Bytes: 96 << 10}, object: values(large), old: values(""), want: `works.mcm.ibm.com "a" is forbidden: namespace "store-1" has 98304 bytes of their templates, and may have 102400 with 8192 more (mcm.namespaceBytes of the hub)`},
		"a change that takes away":  {reason: "it makes room", resource: "works", has: Usage{Objects: 9, Bytes: 1 << 20}, object: values(""), old: values(large)},
		"a change of labels":        {reason: "nothing is asked", resource: "works", has: Usage{Objects: 9, Bytes: 1 << 20}, object: values(huge), old: values(huge)},
		"what cannot be counted":    {reason: "it fails closed", resource: "works", err: errBoom, object: workOfNone, want: `cannot decide: what namespace "store-1" holds: boom`},
		"what cannot be read":       {reason: "it fails closed", resource: "works", object: `{"spec":{"kube":[]}}`, want: "cannot decide: the spec cannot be read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newRecorder(&rights{allowed: true})
			c.limits = limits
			c.usage = StoredFunc(func(_ context.Context, resource metav1.GroupResource, namespace string) (Usage, error) {
				if resource.Resource != tc.resource || namespace != "store-1" {
					return Usage{}, errors.New("asked about something else")
				}
				return tc.has, tc.err
			})
			r := &reviewRequest{
				Resource:  metav1.GroupVersionResource{Group: "mcm.ibm.com", Version: "v1alpha1", Resource: tc.resource},
				Operation: admissionv1.Create, Namespace: "store-1", Name: "a",
				UserInfo: authenticationv1.UserInfo{Username: "alice"}, Object: rawJSON(tc.object), OldObject: rawJSON(tc.old),
			}
			if tc.user != "" {
				r.UserInfo.Username = tc.user
			}
			if tc.old != "" {
				r.Operation = admissionv1.Update
			}
			_, err := c.mutate(t.Context(), r)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
