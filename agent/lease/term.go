// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// term is the time in which work may be done; each election has its own.
type term struct {
	stop     func()        // ends the election
	workTime time.Duration // from the begin of a renewal
	running  sync.WaitGroup

	ctx    context.Context // of the work
	cancel context.CancelFunc

	mu       sync.Mutex
	until    time.Time   // guarded by mu; the work may go on until then; zero before it may
	deadline *time.Timer // guarded by mu; fires at until; nil before
	err      error       // guarded by mu; of work that returned too early
}

func newTerm(stop func(), tenure time.Duration) *term {
	t := &term{stop: stop, workTime: tenure}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// extend lets the work go on: a renewal that was begun then has succeeded.
func (t *term) extend(began time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	t.until = began.Add(t.workTime)
	if t.deadline != nil {
		t.deadline.Stop()
	}
	t.deadline = time.AfterFunc(time.Until(t.until), t.expire)
}

// expire tells the work to end.
func (t *term) expire() {
	t.cancel()
	t.stop() // it must not renew what nobody makes use of
}

// endIfBegun ends a term that has begun: another process holds the lease.
func (t *term) endIfBegun() {
	t.mu.Lock()
	begun := !t.until.IsZero()
	t.mu.Unlock()
	if begun {
		t.expire()
	}
}

// run does the work unless the term has ended.
func (t *term) run(work func(context.Context) error) {
	if !t.start() {
		return
	}
	defer t.running.Done()
	err := work(t.ctx)
	if t.ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errReturned
	}
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
	t.stop()
}

func (t *term) start() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.running.Add(1)
	return true
}

// stopAndWait ends the work and waits for it. The error is that of work that returned
// before.
func (t *term) stopAndWait() error {
	t.mu.Lock()
	t.cancel()
	if t.deadline != nil {
		t.deadline.Stop()
	}
	t.mu.Unlock()
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// isHeld tells whether the work may go on.
func (t *term) isHeld(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Without its monotonic part too: that clock stops while a machine sleeps.
	return t.ctx.Err() == nil && now.Before(t.until) && now.Round(0).Before(t.until.Round(0))
}

// guard is a transport that asks before each request.
type guard struct {
	next  http.RoundTripper
	check func() error
}

// RoundTrip sends a request if it may be sent.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.check(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper leads to the connections, for those who close them.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }
