// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// ErrForbidden: an author lacks a right.
var ErrForbidden = errors.New("forbidden")

// Permission allows a user to create objects of a resource in a namespace. Permissions can be
// compared.
type Permission struct {
	user, groups, extra, namespace string
	resource                       metav1.GroupResource
}

// PermissionToCreate returns the permission of a user to create objects of a resource in a namespace.
func (a User) PermissionToCreate(resource metav1.GroupResource, namespace string) Permission {
	return Permission{user: a.User, groups: strings.Join(a.Groups, ","), extra: a.encodeExtra(), resource: resource, namespace: namespace}
}

// Review asks whether the author has the right. The error wraps ErrForbidden, in the words of
// an API server, if the answer is no; with any other there is none.
func (r Permission) Review(ctx context.Context, access rbacwatch.AccessReviewer) error {
	user := authenticationv1.UserInfo{Username: r.user}
	if r.groups != "" {
		user.Groups = strings.Split(r.groups, ",")
	}
	if r.extra != "" {
		// Asked without it, an authorizer would allow more than the user's token does.
		if err := json.Unmarshal([]byte(r.extra), &user.Extra); err != nil {
			return fmt.Errorf("extra of user %q: %w", r.user, err)
		}
	}
	allowed, err := rbacwatch.IsAllowed(ctx, access, user, authorizationv1.ResourceAttributes{
		Verb: "create", Group: r.resource.Group, Resource: r.resource.Resource, Namespace: r.namespace,
	})
	if err != nil {
		return fmt.Errorf("rights of user %q: %w", r.user, err)
	}
	if !allowed {
		return r.Forbidden()
	}
	return nil
}

// Forbidden is the error of a right that is missing.
func (r Permission) Forbidden() error {
	return fmt.Errorf("%w: user %q cannot create resource %q in API group %q in the namespace %q",
		ErrForbidden, r.user, r.resource.Resource, r.resource.Group, r.namespace)
}
