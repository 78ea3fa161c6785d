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

// access keeps the answers about rights that objects depend on.
type access struct {
	api rbacwatch.AccessReviewer

	mu      sync.Mutex
	needs   map[ref]requester.Right     // guarded by mu
	answers map[requester.Right]*answer // guarded by mu
}

type answer struct {
	// allowed is nil until somebody has been asked. What it points to does not change.
	allowed *bool
	by      map[ref]struct{}
}

func newAccess(api rbacwatch.AccessReviewer) *access {
	return &access{api: api, needs: map[ref]requester.Right{}, answers: map[requester.Right]*answer{}}
}

// allowed tells whether a right is there that an object depends on from now on. With
// fresh it is asked again; the objects that it changes for are returned.
func (a *access) allowed(ctx context.Context, r ref, want requester.Right, fresh bool) (allowed bool, changed []ref, err error) {
	if known := a.depend(r, want); known != nil && !fresh {
		return *known, nil, nil
	}
	if allowed, err = a.ask(ctx, want); err != nil {
		return false, nil, err
	}
	return allowed, a.update(want, allowed), nil
}

// depend records that an object needs a right, and returns what is known of it.
func (a *access) depend(r ref, want requester.Right) *bool {
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
func (a *access) leave(r ref, old requester.Right) {
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
	all := make([]requester.Right, 0, len(a.answers))
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
func (a *access) update(want requester.Right, allowed bool) (changed []ref) {
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

func (a *access) ask(ctx context.Context, want requester.Right) (bool, error) {
	err := want.Ask(ctx, a.api)
	if errors.Is(err, requester.ErrForbidden) {
		return false, nil
	}
	return err == nil, err
}
