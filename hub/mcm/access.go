// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// accessCache keeps the answers about rights that objects depend on.
type accessCache struct {
	api rbacwatch.AccessReviewer

	mu      sync.Mutex
	needs   index[requester.Permission]    // guarded by mu
	answers map[requester.Permission]*bool // guarded by mu; what they point to does not change
}

func newAccessCache(api rbacwatch.AccessReviewer) *accessCache {
	return &accessCache{api: api, needs: newIndex[requester.Permission](), answers: map[requester.Permission]*bool{}}
}

// isAllowed reports whether a permission exists, on which an object depends from now on. With
// fresh it is asked again; the objects that it changes for are returned.
func (a *accessCache) isAllowed(ctx context.Context, r objectKey, want requester.Permission, fresh bool) (allowed bool, changed []objectKey, err error) {
	if known := a.addDependent(r, want); known != nil && !fresh {
		return *known, nil, nil
	}
	if allowed, err = a.review(ctx, want); err != nil {
		return false, nil, err
	}
	return allowed, a.setAnswer(want, allowed), nil
}

// addDependent records that an object needs a permission, and returns what is known of it;
// nil is nothing.
func (a *accessCache) addDependent(r objectKey, want requester.Permission) *bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if unused, ok := a.needs.set(r, want); ok {
		delete(a.answers, unused)
	}
	return a.answers[want]
}

// delete removes an object, and the answer that no other needs.
func (a *accessCache) delete(r objectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if unused, ok := a.needs.delete(r); ok {
		delete(a.answers, unused)
	}
}

// reviewAll asks again about all rights, and returns the objects that depend on those of
// which the answer is another. What cannot be asked stays as it is.
func (a *accessCache) reviewAll(ctx context.Context) (changed []objectKey, err error) {
	a.mu.Lock()
	all := slices.Collect(maps.Keys(a.needs.objects))
	a.mu.Unlock()
	for _, want := range all {
		allowed, failed := a.review(ctx, want)
		if failed != nil {
			err = failed
			continue
		}
		changed = append(changed, a.setAnswer(want, allowed)...)
	}
	return changed, err
}

// setAnswer keeps an answer, and returns the objects that knew another.
func (a *accessCache) setAnswer(want requester.Permission, allowed bool) (changed []objectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.needs.objects[want]) == 0 {
		return nil
	}
	last := a.answers[want]
	a.answers[want] = &allowed
	if last == nil || *last == allowed {
		return nil
	}
	return a.needs.list(want)
}

func (a *accessCache) review(ctx context.Context, want requester.Permission) (bool, error) {
	err := want.Review(ctx, a.api)
	if errors.Is(err, requester.ErrForbidden) {
		return false, nil
	}
	return err == nil, err
}
