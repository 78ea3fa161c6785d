// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/requester"
)

// A WorkSet finds its Works by what says whose they are, and the hub makes them anew that are
// not of the WorkSet as it is: what they ask would be done again.
func TestOwnerOfWorkIsSetByHubOnly(t *testing.T) {
	alice, bob := ofAlice(nil), ofBob(nil)
	ofSet := ofAlice(map[string]string{"mcm.ibm.com/owners": "WorkSet.shop.greet", "spokelet.io/owner-uid": "set"})
	cases := map[string]recordingCase{
		"a set's Work of another registration": {
			reason: "the hub says again for whom it is", user: "bob",
			operation: admissionv1.Update, object: workOfNone, old: strings.Replace(workOfSet, `"uid"`, `"before"`, 1),
			want: with(map[string]string{requester.AnnotationRegistration: "before"}, maps.Clone(ofSet)),
		},
		"a new object of a set": {
			reason: "the hub alone makes such", user: "bob", operation: admissionv1.Create, object: workOfSet, want: bob,
		},
		"a set's Work that is given to another": {
			reason: "the hub would make it anew, and what it asks would be done again", user: "bob",
			operation: admissionv1.Update, object: workTaken, old: workOfSet, want: ofSet,
		},
		"a set's Work that is taken from it": {
			reason: "it would stay when the set goes", user: "bob",
			operation: admissionv1.Update, object: workOfNone, old: workOfSet, want: ofSet,
		},
		"a Work that is given to a set": {
			reason: "the set would have it go", user: "bob",
			operation: admissionv1.Update, object: workOfSet, old: workOfAlice, want: alice,
		},
		"a Work that is given to a set, with another spec": {
			reason: "nor then", user: "bob",
			operation: admissionv1.Update, object: workOfSet, old: workChanged, want: bob,
		},
		"a set's Work that the hub changes": {
			reason: "the hub follows the set", user: self,
			operation: admissionv1.Update, object: workTaken, old: workOfSet,
			want: ofAlice(map[string]string{"mcm.ibm.com/owners": "WorkSet.shop.other", "spokelet.io/owner-uid": "another"}),
		},
	}
	for name, tc := range cases {
		t.Run(name, tc.check)
	}
}

// What it asks is done as the author of the set. The hub changes it back, and that is a new
// generation: done again.
func TestSpecOfOwnedWorkIsProtected(t *testing.T) {
	changed := strings.Replace(workOfSet, `"spec":{`, `"spec":{"type":"Resource",`, 1)
	named := func(owners string) (old, object string) {
		replaced := strings.NewReplacer("WorkSet.shop.greet", owners)
		return replaced.Replace(workOfSet), replaced.Replace(changed)
	}
	cases := map[string]struct {
		reason string
		owners string
		parent string
	}{
		"of a WorkSet":      {reason: "that is the one to change", owners: "WorkSet.shop.greet", parent: "WorkSet shop/greet"},
		"of a ResourceView": {reason: "a name may have dots, a namespace has none", owners: "ResourceView.shop.all.pods", parent: "ResourceView shop/all.pods"},
		"of something else": {reason: "an older hub let others write the annotation", owners: "x", parent: "another object"},
		"of many bytes":     {reason: "they are not repeated", owners: "WorkSet.shop." + strings.Repeat("a", maxReference), parent: "another object"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &reviewRequest{
				Resource: mcmWorks(), Operation: admissionv1.Update, Namespace: "store-1", Name: "greet-1",
				UserInfo: authenticationv1.UserInfo{Username: "alice"},
			}
			old, object := named(tc.owners)
			r.OldObject, r.Object = rawJSON(old), rawJSON(object)
			_, err := newRecorder(&rights{allowed: true}).mutate(t.Context(), r)
			want := &metav1.Status{
				Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403,
				Message: `works.mcm.ibm.com "greet-1" is forbidden: the Work is one of ` + tc.parent + ": change that",
			}
			if err == nil {
				t.Fatal("it is changed")
			}
			if diff := cmp.Diff(want, newStatus(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			r.UserInfo.Username = self
			if _, err := newRecorder(&rights{}).mutate(t.Context(), r); err != nil {
				t.Errorf("the hub itself: %v", err)
			}
		})
	}
}

// What is not a Work is of no set, whatever it is annotated with.
func TestObjectsWithoutOwnerCanBeChanged(t *testing.T) {
	object := strings.Replace(workOfSet, `"spec":{`, `"spec":{"a":"b",`, 1)
	for resource := range recordedResources {
		if resource == worksOfMCM {
			continue
		}
		patches, err := newRecorder(&rights{}).mutate(t.Context(), &reviewRequest{
			Resource:  metav1.GroupVersionResource{Group: resource.Group, Version: "v1beta1", Resource: resource.Resource},
			Operation: admissionv1.Update, UserInfo: authenticationv1.UserInfo{Username: "bob"}, OldObject: rawJSON(workOfSet), Object: rawJSON(object),
		})
		if err != nil || patched(t, object, patches)["mcm.ibm.com/owners"] != "WorkSet.shop.greet" {
			t.Errorf("%s: %v, %v", resource, patches, err)
		}
	}
}
