// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/spokelet/spokelet/internal/rbacwatch"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
)

var (
	// ErrInvalidToken: the token is not one of the hub for this audience.
	ErrInvalidToken = errors.New("the token is not valid")
	// ErrForbidden: the user may not do it.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable: the hub did not answer.
	ErrUnavailable = errors.New("the hub is not available")
)

const (
	// Audience is that of tokens for this API.
	Audience = "spokelet-workers"
	// maxTokenBytes bounds tokens, in bytes, as API servers bound a header.
	maxTokenBytes = 16 << 10
	// reviewTimeout with one review.
	reviewTimeout = 10 * time.Second
)

// Reviewer reviews tokens and permissions by the hub.
type Reviewer struct {
	tokens authenticationclient.TokenReviewInterface
	access authorizationclient.SubjectAccessReviewInterface
}

// NewReviewer returns a Reviewer that uses the clients.
func NewReviewer(tokens authenticationclient.TokenReviewsGetter, access authorizationclient.SubjectAccessReviewsGetter) *Reviewer {
	return &Reviewer{tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews()}
}

// Authenticate returns the user of a token. The error is ErrInvalidToken or ErrUnavailable.
func (r *Reviewer) Authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	if token == "" || len(token) > maxTokenBytes {
		return authenticationv1.UserInfo{}, ErrInvalidToken
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("%w: review of a token: %w", ErrUnavailable, err)
	}
	// An API server without support for audiences returns none.
	if status := review.Status; !status.Authenticated || status.User.Username == "" || !slices.Contains(status.Audiences, Audience) {
		return authenticationv1.UserInfo{}, ErrInvalidToken
	}
	return review.Status.User, nil
}

// Authorize returns nil if a user has a permission on WorkerDeployments of a namespace, or of all
// namespaces if it is empty. The error is ErrForbidden or ErrUnavailable.
func (r *Reviewer) Authorize(ctx context.Context, user authenticationv1.UserInfo, namespace, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	allowed, err := rbacwatch.IsAllowed(ctx, r.access, user, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb,
		Group: deploymentv1alpha1.GroupVersion.Group, Version: deploymentv1alpha1.GroupVersion.Version, Resource: "workerdeployments",
	})
	if err != nil {
		return fmt.Errorf("%w: review of rights: %w", ErrUnavailable, err)
	}
	if !allowed {
		return fmt.Errorf("%w: user %s may not %s workerdeployments there", ErrForbidden, user.Username, verb)
	}
	return nil
}
