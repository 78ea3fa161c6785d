// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Run writes what changes until ctx ends, and then what still waits, for no longer than
// Config.FlushTimeout. The error says that some of that is not durable. Run may be called
// again, but not twice at a time.
func (s *Store) Run(ctx context.Context) error {
	work, stop := linger(ctx, s.cfg.FlushTimeout)
	defer stop()
	sweeps := 0
	for s.await(ctx) {
		if b := s.next(); b != nil {
			s.write(ctx, work, b)
			continue
		}
		sweeps = s.sweep(work, sweeps)
	}
	s.mu.Lock()
	s.hurry()
	s.mu.Unlock()
	for b := s.next(); b != nil && work.Err() == nil; b = s.next() {
		s.write(ctx, work, b)
	}
	return s.unwritten()
}

// linger returns a context that ends some time after ctx.
func linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-ctx.Done():
			pause(work, nil, d)
			cancel()
		case <-work.Done():
		}
	}()
	return work, cancel
}

// await returns when there is something to do, or false at the end of ctx.
func (s *Store) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		d, ok := s.dueIn()
		if ok && d <= 0 {
			return true
		}
		timer := time.NewTimer(d)
		if !ok {
			timer.Stop()
		}
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}

// dueIn says in what time something is to be done; ok is false if nothing is.
func (s *Store) dueIn() (d time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lazyAt.IsZero() && time.Until(s.lazyAt) <= 0 {
		s.hurry()
	}
	if s.flight != nil || len(s.urgent)+len(s.ready) > 0 {
		return 0, true
	}
	at := s.lazyAt
	if at.IsZero() || !s.sweepAt.IsZero() && s.sweepAt.Before(at) {
		at = s.sweepAt
	}
	return time.Until(at), !at.IsZero()
}

// write tries until a batch is written or work ends. When ctx ends there is no time for
// long pauses any more.
func (s *Store) write(ctx, work context.Context, b *batch) {
	hurried := false
	for failures := 0; ; failures++ {
		err := s.try(work, b)
		if err == nil {
			s.commit(b)
			return
		}
		if work.Err() != nil {
			return
		}
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		s.cfg.Logger.Error(err, "Shared state cannot be written", "records", len(b.taken), "failures", failures+1)
		if ctx.Err() != nil && !hurried {
			failures, hurried = 0, true
		}
		end := ctx.Done()
		if hurried {
			end = nil
		}
		pause(work, end, backoff(failures))
	}
}

// sweep deletes one empty segment, if that is due, and returns how many deletions have
// failed in a row.
func (s *Store) sweep(ctx context.Context, failures int) int {
	s.mu.Lock()
	if s.sweepAt.IsZero() || time.Until(s.sweepAt) > 0 {
		s.mu.Unlock()
		return failures
	}
	s.sweepAt = time.Time{}
	g := s.empty()
	s.mu.Unlock()
	if g == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	err := s.remove(ctx, g)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.cfg.Logger.Error(err, "Shared state that is not needed any more cannot be deleted", "failures", failures+1)
		// The others have their turn before it.
		s.segments = append(slices.DeleteFunc(s.segments, func(other *segment) bool { return other == g }), g)
		s.sweepWithin(backoff(failures))
		return failures + 1
	}
	s.drop(g)
	if s.empty() != nil {
		s.sweepWithin(0)
	}
	return 0
}

// unwritten is the error of a Run that leaves something behind.
func (s *Store) unwritten() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.records {
		if r.queued || r.taken {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	if s.err == nil {
		return fmt.Errorf("shared state: %d records are not durable: %w", n, context.DeadlineExceeded)
	}
	return fmt.Errorf("shared state: %d records are not durable: %w", n, s.err)
}

// backoff grows from firstPause to longestPause and is never the same twice.
func backoff(failures int) time.Duration {
	d := longestPause
	if failures < 20 {
		d = min(firstPause<<failures, longestPause)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}

// pause waits for d, or until ctx or end is over.
func pause(ctx context.Context, end <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-end:
	case <-ctx.Done():
	}
}
