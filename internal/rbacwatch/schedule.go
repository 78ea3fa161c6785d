// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"time"
)

// A review runs at once after a change, again when the API server's caches have usually seen
// the change, and once more when they have on a busy machine.
const (
	firstSettle = time.Second
	lastSettle  = 10 * time.Second
)

// Schedule reviews rights after changes. Without changes nothing runs.
type Schedule struct {
	review  func(context.Context)
	changed chan struct{}
}

// NewSchedule returns a schedule of a review, which asks about everything that depends on
// rights. One review runs at a time.
func NewSchedule(review func(context.Context)) *Schedule {
	return &Schedule{review: review, changed: make(chan struct{}, 1)}
}

// Trigger reports that rights may have changed. It does not block.
func (s *Schedule) Trigger() {
	select {
	case s.changed <- struct{}{}:
	default: // one pending change is enough
	}
}

// Run reviews until ctx ends.
func (s *Schedule) Run(ctx context.Context) {
	for s.wait(ctx, nil) {
		for s.reviewRepeatedly(ctx) {
		}
	}
}

// reviewRepeatedly runs the reviews that follow one change, and returns true when there was
// another change. Endless changes cost two reviews a second at most.
func (s *Schedule) reviewRepeatedly(ctx context.Context) (again bool) {
	s.review(ctx)
	settle := time.NewTimer(firstSettle)
	defer settle.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-settle.C:
	}
	select {
	case <-s.changed: // its first review is the second one of the change before
		return true
	default:
	}
	s.review(ctx)
	settle.Reset(lastSettle - firstSettle)
	if s.wait(ctx, settle.C) {
		return true
	}
	if ctx.Err() == nil {
		s.review(ctx)
	}
	return false
}

// wait waits for a change. It returns false at the end of ctx or when due.
func (s *Schedule) wait(ctx context.Context, due <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.changed:
		return true
	case <-due:
		return false
	}
}
