// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestCopyNamespaceNeedsSecretsPermissions(t *testing.T) {
	type answers func(since time.Duration, verb string) (allowed bool, err error)
	tests := map[string]struct {
		reason string
		review answers
		want   string
	}{
		"it may":     {reason: "the copy is kept", review: func(time.Duration, string) (bool, error) { return true, nil }, want: "ns"},
		"it may not": {reason: "nothing else is tried", review: func(_ time.Duration, verb string) (bool, error) { return verb != "patch", nil }},
		"it was granted just now": {
			reason: "an API server judges by the rights from before for a moment", want: "ns",
			review: func(since time.Duration, _ string) (bool, error) { return since > time.Second, nil },
		},
		"the API server does not answer at first": {
			reason: "that is no denial", want: "ns",
			review: func(since time.Duration, _ string) (bool, error) {
				if since < time.Minute {
					return false, errors.New("connection refused")
				}
				return true, nil
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
				client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
					create, ok := action.(clienttesting.CreateAction)
					if !ok {
						return false, nil, nil
					}
					review, ok := create.GetObject().DeepCopyObject().(*authorizationv1.SelfSubjectAccessReview)
					if !ok {
						return false, nil, nil
					}
					var err error
					review.Status.Allowed, err = tc.review(time.Since(began), review.Spec.ResourceAttributes.Verb)
					return true, review, err
				})
				if got := findCopyNamespace(t.Context(), client, "ns", logr.Discard()); got != tc.want {
					t.Errorf("%s: namespace %q, want %q", tc.reason, got, tc.want)
				}
			})
		})
	}
}
