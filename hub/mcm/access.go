// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/author"
)

// Access asks the API server what a user may do. client-go's SubjectAccessReviews are
// one.
type Access interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// right is that to create objects of a resource in a namespace, in a form that can be
// compared.
type right struct {
	user, groups, namespace string
	resource                metav1.GroupResource
}

func rightOf(a author.Author, resource metav1.GroupResource, namespace string) right {
	return right{user: a.User, groups: strings.Join(a.Groups, ","), resource: resource, namespace: namespace}
}

// refused is what is said of a right that is missing, as an API server does.
func (r right) refused() string {
	return fmt.Sprintf("forbidden: user %q cannot create resource %q in API group %q in the namespace %q",
		r.user, r.resource.Resource, r.resource.Group, r.namespace)
}

// access keeps the answers about rights that objects depend on.
type access struct {
	api Access

	mu      sync.Mutex
	needs   map[ref]right     // guarded by mu
	answers map[right]*answer // guarded by mu
}

type answer struct {
	// allowed is nil until somebody has been asked. What it points to does not change.
	allowed *bool
	by      map[ref]struct{}
}

func newAccess(api Access) *access {
	return &access{api: api, needs: map[ref]right{}, answers: map[right]*answer{}}
}

// allowed tells whether a right is there that an object depends on from now on. With
// fresh it is asked again; the objects that it changes for are returned.
func (a *access) allowed(ctx context.Context, r ref, want right, fresh bool) (allowed bool, changed []ref, err error) {
	if known := a.depend(r, want); known != nil && !fresh {
		return *known, nil, nil
	}
	if allowed, err = a.ask(ctx, want); err != nil {
		return false, nil, err
	}
	return allowed, a.update(want, allowed), nil
}

// depend records that an object needs a right, and returns what is known of it.
func (a *access) depend(r ref, want right) *bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.needs[r]; ok && old != want {
		a.leave(r, old)
	}
	a.needs[r] = want
	known := a.answers[want]
	if known == nil {
		known = &answer{by: map[ref]struct{}{}}
		a.answers[want] = known
	}
	known.by[r] = struct{}{}
	return known.allowed
}

// leave drops one who depends, and with the last the answer; a.mu is held.
func (a *access) leave(r ref, old right) {
	delete(a.needs, r)
	if known := a.answers[old]; known != nil {
		delete(known.by, r)
		if len(known.by) == 0 {
			delete(a.answers, old)
		}
	}
}

// remove ends what an object depends on.
func (a *access) remove(r ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.needs[r]; ok {
		a.leave(r, old)
	}
}

// review asks again about all rights, and returns the objects that depend on those of
// which the answer is another. What cannot be asked stays as it is.
func (a *access) review(ctx context.Context) (changed []ref, err error) {
	a.mu.Lock()
	all := make([]right, 0, len(a.answers))
	for r := range a.answers {
		all = append(all, r)
	}
	a.mu.Unlock()
	for _, want := range all {
		allowed, failed := a.ask(ctx, want)
		if failed != nil {
			err = failed
			continue
		}
		changed = append(changed, a.update(want, allowed)...)
	}
	return changed, err
}

// update keeps an answer, and returns the objects that knew another.
func (a *access) update(want right, allowed bool) (changed []ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.answers[want]
	if known == nil {
		return nil
	}
	last := known.allowed
	known.allowed = &allowed
	if last == nil || *last == allowed {
		return nil
	}
	return slices.Collect(maps.Keys(known.by))
}

func (a *access) ask(ctx context.Context, want right) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: want.user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: want.resource.Group, Resource: want.resource.Resource, Namespace: want.namespace,
		},
	}
	if want.groups != "" {
		spec.Groups = strings.Split(want.groups, ",")
	}
	got, err := a.api.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("rights of user %q: %w", want.user, err)
	}
	return got.Status.Allowed && !got.Status.Denied, nil
}
