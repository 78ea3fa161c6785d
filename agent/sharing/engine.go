// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Engine keeps the shares of one hub.
type Engine struct {
	cfg    Config
	writes *resource.Source
	states *resource.Source
	shares *resource.Mirror
	// objects comes after shares, and one goroutine calls both.
	objects *resource.Mirror
	queue   workqueue.TypedRateLimitingInterface[wire.SharedKey]
	limiter ratelimit.KeyedLimiter[wire.SharedKey]
	// reportNeeded is signalled when sharesToReport is not empty.
	reportNeeded chan struct{}

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// runCtx is the context of Run; nil before. stopped: no goroutine is started any more.
	runCtx       context.Context
	stopped      bool
	sharesByName map[string]*share
	// synced: the hub has sent all that it has, once.
	synced bool
	// generation is the number of the last write or decision.
	generation int64
	// writeSlots are the objects whose write the hub has not answered; waitingForSlot those
	// that wait for a slot, in order.
	writeSlots     map[wire.SharedKey]struct{}
	waitingForSlot []wire.SharedKey
	// sharesToReport are the shares whose state may have changed.
	sharesToReport map[*share]struct{}

	running sync.WaitGroup
}

// New returns an engine without shares, which makes no request before Run.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, writes: resource.NewSource(wire.KindSharedWrite), states: resource.NewSource(wire.KindShareState),
		queue:        workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[wire.SharedKey](firstRetry, longestRetry)),
		reportNeeded: make(chan struct{}, 1),
		sharesByName: map[string]*share{}, writeSlots: map[wire.SharedKey]struct{}{}, sharesToReport: map[*share]struct{}{},
	}
	e.shares = resource.NewMirror(wire.KindShare, resource.Receiver{Put: e.handleShare, Delete: e.handleShareDeletion, Synced: e.deleteOrphanedRecords})
	e.objects = resource.NewMirror(wire.KindSharedObject, resource.Receiver{Put: e.handleHubObject, Delete: e.handleHubObjectDeletion, Synced: e.markSynced})
	// Writes of the process before are published again, where they are still needed.
	e.writes.Complete()
	e.states.Complete()
	return e, nil
}

// Sources publish writes and states.
func (e *Engine) Sources() []*resource.Source { return []*resource.Source{e.writes, e.states} }

// Mirrors receive shares and objects.
func (e *Engine) Mirrors() []*resource.Mirror { return []*resource.Mirror{e.shares, e.objects} }

// Run shares objects until ctx ends, and returns when nothing is being written any more.
// An engine runs once.
func (e *Engine) Run(ctx context.Context) error {
	for _, s := range e.setRunContext(ctx) {
		e.startShare(s)
	}
	for range workers {
		e.running.Go(func() {
			for e.processNextItem(ctx) {
			}
		})
	}
	e.running.Go(func() { e.runReporter(ctx) })
	<-ctx.Done()
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.queue.ShutDown()
	e.running.Wait()
	return nil
}

// processNextItem reconciles one object; it returns false when the queue is shut down.
func (e *Engine) processNextItem(ctx context.Context) bool {
	key, shutdown := e.queue.Get()
	if shutdown {
		return false
	}
	defer e.queue.Done(key)
	again, err := e.reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.cfg.Logger.V(1).Info("Object will be retried", "object", key.String(), "err", err.Error())
		e.queue.AddRateLimited(key)
	case again > 0:
		e.queue.AddAfter(key, again)
	default:
		e.queue.Forget(key)
	}
	return true
}

// getOrCreateShare returns the share of a name, created on first use.
func (e *Engine) getOrCreateShare(name string) *share {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.sharesByName[name]
	if !ok {
		s = newShare(e, name)
		e.sharesByName[name] = s
	}
	return s
}

func (e *Engine) getShare(name string) *share {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sharesByName[name]
}

// setRunContext has shares started from now on, and returns those that exist already.
func (e *Engine) setRunContext(ctx context.Context) []*share {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runCtx = ctx
	return slices.Collect(maps.Values(e.sharesByName))
}

// startShare has a share watch the cluster, once the engine runs.
func (e *Engine) startShare(s *share) {
	e.mu.Lock()
	ctx := e.runCtx
	e.mu.Unlock()
	if ctx != nil {
		s.startWatches(ctx)
	}
}

// claim is the set of objects that only one share may have: two shares of the same objects
// would both decide about the same changes, and each count them for its own quota.
type claim struct {
	resource  schema.GroupResource
	namespace string
}

// claimObjects claims the objects of a share's spec in place of what it had; it returns the
// name of the share that has claimed them already, if there is one. s.mu is held.
func (e *Engine) claimObjects(s *share) (other string) {
	var want claim
	if s.spec != nil && s.spec.Problem == nil {
		want = claim{resource: resourceOf(s.spec).GroupResource(), namespace: s.spec.SpokeNamespace}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, t := range e.sharesByName {
		if t != s && t.claimed == want && want != (claim{}) {
			want, other = claim{}, name
		}
	}
	if s.claimed != want && s.claimed != (claim{}) && !e.stopped {
		e.running.Go(func() { e.restartOverlapping(s) })
	}
	s.claimed = want
	return other
}

// restartOverlapping starts the shares that overlapped with another one, which may be gone.
func (e *Engine) restartOverlapping(but *share) {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.sharesByName))
	e.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		overlaps := s != but && s.problem != nil && s.problem.Reason == syncv1alpha1.ReasonOverlap
		s.mu.Unlock()
		if overlaps {
			e.startShare(s)
		}
	}
}

// getRunContext returns the context of Run.
func (e *Engine) getRunContext() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runCtx
}

// startGoroutine starts a goroutine that Run waits for; false when Run has ended.
func (e *Engine) startGoroutine(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.running.Go(f)
	return true
}

// acquireWriteSlot reports whether an object may publish a write to the hub now; if not, it is
// enqueued when a slot is free.
func (e *Engine) acquireWriteSlot(key wire.SharedKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.writeSlots[key]; !ok && len(e.writeSlots) >= maxWrites {
		e.waitingForSlot = append(e.waitingForSlot, key)
		return false
	}
	e.writeSlots[key] = struct{}{}
	return true
}

// releaseWriteSlot withdraws an object's write to the hub, and enqueues the next that waits.
func (e *Engine) releaseWriteSlot(key wire.SharedKey) {
	e.writes.Delete(key.String())
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.writeSlots, key)
	if len(e.waitingForSlot) > 0 {
		e.queue.Add(e.waitingForSlot[0])
		e.waitingForSlot = e.waitingForSlot[1:]
	}
}

// nextGeneration numbers writes and decisions: by the clock, so that the number grows
// across restarts.
func (e *Engine) nextGeneration() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.generation = max(time.Now().UnixMicro(), e.generation+1)
	return e.generation
}
