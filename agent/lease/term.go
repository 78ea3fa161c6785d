// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// term is the time in which the work may run. Each election has one.
type term struct {
	stop     func()        // ends the election
	workTime time.Duration // from the begin of a renewal
	running  sync.WaitGroup

	ctx    context.Context // of the work
	cancel context.CancelFunc

	mu       sync.Mutex
	until    time.Time   // guarded by mu; end of the work; zero before its begin
	deadline *time.Timer // guarded by mu; fires at until; nil before
	err      error       // guarded by mu; of work that returned too early
}

func newTerm(stop func(), tenure time.Duration) *term {
	t := &term{stop: stop, workTime: tenure}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// extend extends the term after a successful renewal, which began then.
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

// expire stops the work and the election.
func (t *term) expire() {
	t.cancel()
	t.stop() // which must not renew a lease that is not used
}

// endIfBegun ends a term that has begun, because another process holds the lease.
func (t *term) endIfBegun() {
	t.mu.Lock()
	begun := !t.until.IsZero()
	t.mu.Unlock()
	if begun {
		t.expire()
	}
}

// run runs the work unless the term has ended.
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

// stopAndWait stops the work and waits for it. It returns the error of work that returned
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

// isHeld reports whether the work may continue.
func (t *term) isHeld(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The wall clock counts as well: the monotonic clock stops while a machine sleeps.
	return t.ctx.Err() == nil && now.Before(t.until) && now.Round(0).Before(t.until.Round(0))
}

// guard is a transport that checks the lease before each request.
type guard struct {
	next  http.RoundTripper
	check func() error
}

// RoundTrip sends a request if the check allows it.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.check(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper returns the transport that has the connections, for those who close them.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }
