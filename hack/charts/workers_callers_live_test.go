// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// TestARealAPIServerLetsCallersCallAndNothingElse: of the hub and of a cluster, which are the
// same here.
func TestARealAPIServerLetsCallersCallAndNothingElse(t *testing.T) {
	h := newAccountOf(t, workersChart)
	inCluster := "workers-" + h.namespace
	_, err := h.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inCluster}}, metav1.CreateOptions{})
	h.must(err)
	t.Cleanup(func() {
		_ = h.admin.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), inCluster, metav1.DeleteOptions{})
	})
	hub, works := ofCallers(t, callers(h.namespace)...)
	for _, object := range slices.Concat(hub, manifests(t, works[0])) {
		h.applyObject(object)
	}
	const caller = "system:serviceaccount:team-a:caller"
	proxy := func(cluster string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Group: "live.spokelet.io", Resource: "clusters", Subresource: "proxy", Name: cluster}
	}
	services := func(namespace string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Resource: "services", Subresource: "proxy", Namespace: namespace, Name: "worker-hello:http"}
	}
	for name, tc := range map[string]struct {
		reason, user, group, verb string
		asks                      authorizationv1.ResourceAttributes
		want                      bool
	}{
		"a user on the hub":          {reason: "he is named", user: caller, verb: "get", asks: proxy("spoke1"), want: true},
		"a group on the hub":         {reason: "it is named", user: "alice", group: "developers", verb: "create", asks: proxy("spoke2"), want: true},
		"another cluster":            {reason: "it is not named", user: caller, verb: "get", asks: proxy("spoke3")},
		"a stranger on the hub":      {reason: "he is not named", user: "alice", verb: "get", asks: proxy("spoke1")},
		"a user in the cluster":      {reason: "he is named", user: "hub:" + caller, verb: "create", asks: services(inCluster), want: true},
		"a group in the cluster":     {reason: "it is named", user: "hub:alice", group: "hub:developers", verb: "delete", asks: services(inCluster), want: true},
		"another namespace":          {reason: "it is no account's that he may call", user: "hub:" + caller, verb: "get", asks: services(h.namespace)},
		"a stranger in the cluster":  {reason: "he is not named", user: "hub:alice", verb: "get", asks: services(inCluster)},
		"a pod of the account":       {reason: "scripts are called by their Services", user: "hub:" + caller, verb: "get", asks: authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "proxy", Namespace: inCluster}},
		"a secret in the account":    {reason: "who calls a script reads none of its secrets", user: "hub:" + caller, verb: "get", asks: authorizationv1.ResourceAttributes{Resource: "secrets", Namespace: inCluster}},
		"the name of the cluster's":  {reason: "a user of the cluster is not one of the hub", user: caller, verb: "get", asks: services(inCluster)},
		"every cluster, by no name":  {reason: "only those that are named", user: caller, verb: "get", asks: proxy("")},
		"the list of what they call": {reason: "nothing is listed", user: "hub:" + caller, verb: "list", asks: services(inCluster)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.asks.Verb = tc.verb
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: tc.user, ResourceAttributes: &tc.asks}}
			if tc.group != "" {
				review.Spec.Groups = []string{tc.group}
			}
			var got bool
			asked := func() bool {
				answer, err := h.admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				h.must(err)
				got = answer.Status.Allowed
				return got == tc.want
			}
			if tc.want { // the authorizer follows the roles
				livetest.Eventually(t, name, asked)
			} else if !asked() {
				t.Errorf("%s may %s %s: %s", tc.user, tc.verb, tc.asks.Resource, tc.reason)
			}
		})
	}
}
