// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// longest is how long a computation may last, however little it computes, and shortest
// how long is waited before its clock is looked at again.
const (
	longest  = 30 * time.Second
	shortest = time.Millisecond
)

// Limit returns a context that ends, with a cause, when the calling goroutine has
// computed for d since. It is not to be used by another. The caller must call end,
// which returns how long it has computed; until then it has a thread for itself.
func Limit(parent context.Context, d time.Duration, cause error) (ctx context.Context, end func() time.Duration) {
	runtime.LockOSThread()
	ctx, cancel := context.WithCancelCause(parent)
	l := &limit{used: threadClock(), most: d, began: time.Now(), exceed: func() { cancel(cause) }}
	l.start(min(d, longest))
	return ctx, func() time.Duration {
		used := l.stop()
		cancel(nil)
		runtime.UnlockOSThread()
		return used
	}
}

// limit looks at a thread's clock when that can have come to the most.
type limit struct {
	used   func() time.Duration
	most   time.Duration
	began  time.Time
	exceed func()

	mu    sync.Mutex // guards what is below; the thread is not left while it is held
	over  bool
	timer *time.Timer
}

// start looks at the clock after d.
func (l *limit) start(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(d, l.look)
}

func (l *limit) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	left := min(l.most-l.used(), longest-time.Since(l.began))
	if left <= 0 {
		l.exceed()
		return
	}
	l.timer.Reset(max(left, shortest))
}

func (l *limit) stop() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.timer.Stop()
	return l.used()
}

// wallClock tells how long ago it was made.
func wallClock() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}
