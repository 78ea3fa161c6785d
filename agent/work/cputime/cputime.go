// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// maxDuration is how long a computation may last, however little it computes, and shortest
// how long is waited before its clock is looked at again.
const (
	maxDuration      = 30 * time.Second
	minCheckInterval = time.Millisecond
)

// Limit returns a context that ends, with a cause, when the calling goroutine has used d of
// processor time. No other goroutine may use it. The caller must call end, which returns
// the used time; until then the goroutine is locked to its thread.
func Limit(parent context.Context, d time.Duration, cause error) (ctx context.Context, end func() time.Duration) {
	runtime.LockOSThread()
	ctx, cancel := context.WithCancelCause(parent)
	l := &limiter{elapsed: newThreadClock(), budget: d, began: time.Now(), cancel: func() { cancel(cause) }}
	l.start(min(d, maxDuration))
	return ctx, func() time.Duration {
		used := l.stop()
		cancel(nil)
		runtime.UnlockOSThread()
		return used
	}
}

// limiter checks the clock of a thread when it may have reached the budget.
type limiter struct {
	elapsed func() time.Duration
	budget  time.Duration
	began   time.Time
	cancel  func()

	mu      sync.Mutex // guards all below; the goroutine keeps its thread while it is locked
	stopped bool
	timer   *time.Timer
}

// start checks the clock after d.
func (l *limiter) start(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(d, l.checkClock)
}

func (l *limiter) checkClock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	left := min(l.budget-l.elapsed(), maxDuration-time.Since(l.began))
	if left <= 0 {
		l.cancel()
		return
	}
	l.timer.Reset(max(left, minCheckInterval))
}

func (l *limiter) stop() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
	return l.elapsed()
}

// newWallClock returns the time since its creation.
func newWallClock() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
