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
	needs   map[objectKey]requester.Permission // guarded by mu
	answers map[requester.Permission]*answer   // guarded by mu
}

type answer struct {
	// allowed is nil until somebody has been asked. What it points to does not change.
	allowed *bool
	by      map[objectKey]struct{}
}

func newAccessCache(api rbacwatch.AccessReviewer) *accessCache {
	return &accessCache{api: api, needs: map[objectKey]requester.Permission{}, answers: map[requester.Permission]*answer{}}
}

// isAllowed tells whether a right is there that an object depends on from now on. With
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

// addDependent records that an object needs a right, and returns what is known of it.
func (a *accessCache) addDependent(r objectKey, want requester.Permission) *bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.needs[r]; ok && old != want {
		a.removeDependent(r, old)
	}
	a.needs[r] = want
	known := a.answers[want]
	if known == nil {
		known = &answer{by: map[objectKey]struct{}{}}
		a.answers[want] = known
	}
	known.by[r] = struct{}{}
	return known.allowed
}

// removeDependent drops one who depends, and with the last the answer; a.mu is held.
func (a *accessCache) removeDependent(r objectKey, old requester.Permission) {
	delete(a.needs, r)
	if known := a.answers[old]; known != nil {
		delete(known.by, r)
		if len(known.by) == 0 {
			delete(a.answers, old)
		}
	}
}

// forget ends what an object depends on.
func (a *accessCache) forget(r objectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.needs[r]; ok {
		a.removeDependent(r, old)
	}
}

// reviewAll asks again about all rights, and returns the objects that depend on those of
// which the answer is another. What cannot be asked stays as it is.
func (a *accessCache) reviewAll(ctx context.Context) (changed []objectKey, err error) {
	a.mu.Lock()
	all := make([]requester.Permission, 0, len(a.answers))
	for r := range a.answers {
		all = append(all, r)
	}
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

func (a *accessCache) review(ctx context.Context, want requester.Permission) (bool, error) {
	err := want.Review(ctx, a.api)
	if errors.Is(err, requester.ErrForbidden) {
		return false, nil
	}
	return err == nil, err
}
