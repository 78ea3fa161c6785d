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

// Limit returns a context that ends, with a cause, when the calling goroutine has
// computed for d since. It is not to be used by another. The caller must call end,
// which returns how long it has computed; until then it has a thread for itself.
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

// limiter looks at a thread's clock when that can have come to the most.
type limiter struct {
	elapsed func() time.Duration
	budget  time.Duration
	began   time.Time
	cancel  func()

	mu      sync.Mutex // guards what is below; the thread is not left while it is held
	stopped bool
	timer   *time.Timer
}

// start looks at the clock after d.
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

// newWallClock tells how long ago it was made.
func newWallClock() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
