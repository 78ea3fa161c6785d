// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrForbidden: an author lacks a right.
var ErrForbidden = errors.New("forbidden")

// Access asks the API server what a user may do. client-go's SubjectAccessReviews are
// one.
type Access interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Right is that of an author to create objects of a resource in a namespace. Rights can be
// compared.
type Right struct {
	user, groups, extra, namespace string
	resource                       metav1.GroupResource
}

// ToCreate returns the right of an author to create objects of a resource in a namespace.
func (a Author) ToCreate(resource metav1.GroupResource, namespace string) Right {
	return Right{user: a.User, groups: strings.Join(a.Groups, ","), extra: a.extra(), resource: resource, namespace: namespace}
}

// Ask asks whether the author has the right. The error wraps ErrForbidden, in the words of
// an API server, if the answer is no; with any other there is none.
func (r Right) Ask(ctx context.Context, access Access) error {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: r.user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: r.resource.Group, Resource: r.resource.Resource, Namespace: r.namespace,
		},
	}
	if r.groups != "" {
		spec.Groups = strings.Split(r.groups, ",")
	}
	if r.extra != "" {
		// Asked without it, an authorizer would allow more than the user's token does.
		if err := json.Unmarshal([]byte(r.extra), &spec.Extra); err != nil {
			return fmt.Errorf("extra of user %q: %w", r.user, err)
		}
	}
	got, err := access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("rights of user %q: %w", r.user, err)
	}
	if !got.Status.Allowed || got.Status.Denied {
		return r.Refusal()
	}
	return nil
}

// Refusal is the error of a right that is missing.
func (r Right) Refusal() error {
	return fmt.Errorf("%w: user %q cannot create resource %q in API group %q in the namespace %q",
		ErrForbidden, r.user, r.resource.Resource, r.resource.Group, r.namespace)
}
