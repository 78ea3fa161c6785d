// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"context"
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const scopes = "scopes.authorization.openshift.io"

// scopeAuthorizer is an authorizer that allows alice all, and to her tokens what their scopes name.
type scopeAuthorizer struct{}

func (scopeAuthorizer) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	limited, ok := review.Spec.Extra[scopes]
	review.Status.Allowed = !ok || slices.Contains(limited, "user:full")
	return review, nil
}

func TestScopedTokenHasNoPermissionBeyondItsScopes(t *testing.T) {
	works := metav1.GroupResource{Group: "mcm.ibm.com", Resource: "works"}
	cases := map[string]struct {
		extra map[string][]string
		want  error
	}{
		"no scopes":      {},
		"all of them":    {extra: map[string][]string{scopes: {"user:full"}}},
		"one that views": {extra: map[string][]string{scopes: {"user:info"}}, want: ErrForbidden},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			by, err := NewUser("alice", []string{"dev"}, tc.extra)
			if err != nil {
				t.Fatal(err)
			}
			recorded := &metav1.ObjectMeta{Annotations: by.Annotations(MCM, "uid")}
			if by, err = FromObject(recorded, MCM, "uid"); err != nil {
				t.Fatal(err)
			}
			if err := by.PermissionToCreate(works, "store-1").Review(t.Context(), scopeAuthorizer{}); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}
