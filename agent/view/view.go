// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

const (
	// minPublishInterval separates two answers of a view.
	minPublishInterval = time.Second
	// refusalRetryInterval is the minimum time after which a refused view is retried when
	// nothing that is watched has changed; up to as much again is added at random.
	refusalRetryInterval = 5 * time.Minute
	// Backoff between attempts to find the resource, with jitter.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// view is one view, which one goroutine runs.
type view struct {
	engine *Engine
	key    string
	spec   wire.View
	// stop stops the goroutine; nil while there is none. Guarded by Engine.mu.
	stop context.CancelFunc
	// retries ends the wait after a refusal.
	retries chan struct{}

	mu sync.Mutex
	// All below are guarded by mu.
	generation int64
	closed     bool
	// mapping of the resource; nil before it was found.
	mapping *meta.RESTMapping
	// interrupt ends the present watch, so that it begins again.
	interrupt context.CancelFunc
	// refusal is nil while a list is published.
	refusal *wire.Refusal
	// body is the last answer, nil before the first, and published its time.
	body      []byte
	published time.Time
	list      *list
	// timer publishes the list; nil unless the list has changed since the last answer.
	timer *time.Timer
}

func newView(e *Engine, key string, spec wire.View, generation int64) *view {
	if spec.Releases {
		spec = secretsViewOf(spec)
	}
	// One object has no rows.
	spec.Table = spec.Table && spec.Target.Name == ""
	return &view{engine: e, key: key, spec: spec, generation: generation, retries: make(chan struct{}, 1), interrupt: func() {}}
}

// setGeneration publishes the last answer with a new generation.
func (v *view) setGeneration(generation int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.generation = generation
	if v.body != nil && !v.closed {
		v.engine.publish(v.key, generation, v.body)
	}
}

// close prevents further answers.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	v.setRefusal(nil)
	v.stopTimer()
	v.setList(nil)
}

// retry ends the wait after a refusal.
func (v *view) retry() {
	select {
	case v.retries <- struct{}{}:
	default: // a retry is pending
	}
}

// run watches until ctx ends.
func (v *view) run(ctx context.Context) {
	defer v.close()
	for failures := 0; ctx.Err() == nil; {
		select {
		case <-v.retries: // this is the attempt
		default:
		}
		began := time.Now()
		err := v.watch(ctx)
		refusal := refusalOf(err)
		if refusal != nil {
			v.refuse(refusal)
		}
		switch {
		case err == nil: // interrupted
			failures = 0
			// Before the first answer only a review interrupts; later anybody who creates
			// objects may cause it.
			if v.hasAnswer() {
				v.wait(ctx, time.Until(began.Add(minPublishInterval)))
			}
		case refusal != nil && !apierrors.IsUnauthorized(err):
			failures = 0
			v.wait(ctx, refusalRetryInterval+rand.N(refusalRetryInterval)) //nolint:gosec // spreads load, guards nothing
		default: // no answer, or one about the agent's own credential
			v.engine.cfg.Logger.V(1).Info("View is retried", "key", v.key, "err", err.Error())
			d := min(minBackoff<<min(failures, 16), maxBackoff)
			v.wait(ctx, d/2+rand.N(d/2)) //nolint:gosec // as above
			failures++
		}
	}
}

// wait returns after a time, at a retry, or when ctx ends.
func (v *view) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-v.retries:
	case <-timer.C:
	}
}

// watch lists and watches the objects. It returns nil when it was interrupted, or why they
// cannot be watched.
func (v *view) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err := resolveTarget(v.spec, v.engine.cfg.Resources)
	if err != nil {
		return err
	}
	feed, err := newFeed(v.spec, m, v.engine.cfg.Door)
	if err != nil {
		return err
	}
	v.setWatch(m, cancel)
	s := &viewSink{view: v, mapping: m, feed: feed, cancel: cancel}
	defer s.close()
	(&watcher.Watcher{
		ListWatch: feed.ListWatch, Handler: s, IsDenied: func(err error) bool { return refusalOf(err) != nil },
		Log: v.engine.cfg.Logger,
	}).Run(ctx)
	if apierrors.IsNotFound(s.refusal) {
		v.engine.cfg.Resources.Reset()
		return notServedError(m)
	}
	return s.refusal
}

// setWatch records the present watch, so that it can be interrupted.
func (v *view) setWatch(m *meta.RESTMapping, interrupt context.CancelFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mapping, v.interrupt = m, interrupt
}

// refuse publishes a refusal.
func (v *view) refuse(r *wire.Refusal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.setRefusal(r)
	v.stopTimer()
	v.setList(nil)
	v.publish(encodeRefusal(r))
}

// uncountList subtracts the shown list from the used memory, because the list that is being
// read replaces it.
func (v *view) uncountList() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list != nil {
		v.list.releaseAccount()
	}
}

// reuseBytes returns an item of a reloaded list with the bytes of the shown list, if they are
// equal.
func (v *view) reuseBytes(i item) item {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list == nil {
		return i
	}
	if raw := v.list.items[i.key]; bytes.Equal(raw, i.raw) {
		i.raw = raw
	}
	return i
}

// setShownList publishes a complete list, and from then on its changes.
func (v *view) setShownList(l *list) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		l.release()
		return
	}
	v.setList(l)
	v.schedulePublish()
}

// applyEvent applies an event to the shown list. The error refuses the view.
func (v *view) applyEvent(l *list, i item) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.list != l || l == nil {
		return nil
	}
	changed, err := l.update(i)
	if err != nil || !changed {
		return err
	}
	if l.shouldReload() {
		v.interrupt()
	}
	v.schedulePublish()
	return nil
}

// schedulePublish publishes the list, now or after minPublishInterval. The caller holds v.mu.
func (v *view) schedulePublish() {
	wait := time.Until(v.published.Add(minPublishInterval))
	switch {
	case v.timer != nil:
	case v.body == nil, v.refusal != nil, wait <= 0:
		v.publishList()
	default:
		v.timer = time.AfterFunc(wait, v.publishDelayed)
	}
}

func (v *view) publishDelayed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timer = nil
	if v.list != nil {
		v.publishList()
	}
}

// publishList publishes the list. The caller holds v.mu.
func (v *view) publishList() {
	v.setRefusal(nil)
	v.publish(v.list.encode(v.body))
}

// publish publishes an answer that differs from the last. The caller holds v.mu.
func (v *view) publish(body []byte) {
	if bytes.Equal(v.body, body) {
		return
	}
	v.body, v.published = body, time.Now()
	v.engine.publish(v.key, v.generation, body)
}

// setRefusal sets the refusal, and starts or stops what may end it. The caller holds v.mu.
func (v *view) setRefusal(r *wire.Refusal) {
	was, is := causeOf(v.refusal), causeOf(r)
	v.refusal = r
	if was == is {
		return
	}
	switch was {
	case wire.CauseTarget:
		v.engine.definitions.release()
	case wire.CauseLimit:
		v.engine.memory.waiting.Add(-1)
	default:
	}
	switch is {
	case wire.CauseTarget:
		v.engine.definitions.acquire()
	case wire.CauseLimit:
		v.engine.memory.waiting.Add(1)
	default:
	}
}

func causeOf(r *wire.Refusal) wire.Cause {
	if r == nil {
		return ""
	}
	return r.Cause
}

// isRefusedFor reports whether a view is refused for a cause.
func (v *view) isRefusedFor(cause wire.Cause) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return causeOf(v.refusal) == cause
}

// setList replaces the shown list. The caller holds v.mu.
func (v *view) setList(l *list) {
	if v.list != nil && v.list != l {
		v.list.release()
	}
	v.list = l
}

// stopTimer cancels the pending answer. The caller holds v.mu.
func (v *view) stopTimer() {
	if v.timer != nil {
		v.timer.Stop()
		v.timer = nil
	}
}
