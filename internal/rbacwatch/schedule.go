// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"time"
)

// When is looked after a change: at once, when the API server's caches have usually seen
// it, and when they have on a busy machine.
const (
	firstSettle = time.Second
	lastSettle  = 10 * time.Second
)

// Schedule has rights reviewed after changes. At rest nothing runs.
type Schedule struct {
	review  func(context.Context)
	changed chan struct{}
}

// NewSchedule returns a schedule of a review, which asks about everything that depends on
// rights. Reviews follow each other.
func NewSchedule(review func(context.Context)) *Schedule {
	return &Schedule{review: review, changed: make(chan struct{}, 1)}
}

// Changed says that rights may have changed. It does not block.
func (s *Schedule) Changed() {
	select {
	case s.changed <- struct{}{}:
	default: // one that waits is enough
	}
}

// Run reviews until ctx ends.
func (s *Schedule) Run(ctx context.Context) {
	for s.wait(ctx, nil) {
		for s.follow(ctx) {
		}
	}
}

// follow reviews after one change, and returns true when there was another. Changes
// without end cost two reviews a second at most.
func (s *Schedule) follow(ctx context.Context) (again bool) {
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

// wait returns true at a change, false at the end of ctx or when due.
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
