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
	// objects is made after shares, and both are told from one goroutine.
	objects *resource.Mirror
	queue   workqueue.TypedRateLimitingInterface[wire.SharedKey]
	pace    ratelimit.Pacer[wire.SharedKey]
	// dirty is signalled when a state is to be reported.
	dirty chan struct{}

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// ctx is that of Run; nil before. ended: nothing is started any more.
	ctx    context.Context
	ended  bool
	byName map[string]*share
	// synced: the hub has said all that it has, once.
	synced bool
	// generation is that of the last write.
	generation int64
	// asked are the objects whose write the hub has not answered; waiting those that wait
	// for a place among them, in order.
	asked   map[wire.SharedKey]struct{}
	waiting []wire.SharedKey
	// unreported are the shares whose state may have changed.
	unreported map[*share]struct{}

	running sync.WaitGroup
}

// New returns an engine without shares, which makes no request before Run.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, writes: resource.NewSource(wire.KindSharedWrite), states: resource.NewSource(wire.KindShareState),
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[wire.SharedKey](firstPause, longestPause)),
		dirty:  make(chan struct{}, 1),
		byName: map[string]*share{}, asked: map[wire.SharedKey]struct{}{}, unreported: map[*share]struct{}{},
	}
	e.shares = resource.NewMirror(wire.KindShare, resource.Receiver{Put: e.putShare, Delete: e.deleteShare, Synced: e.sharesSynced})
	e.objects = resource.NewMirror(wire.KindSharedObject, resource.Receiver{Put: e.putObject, Delete: e.deleteObject, Synced: e.objectsSynced})
	// What the process before has asked for is asked again, where that is still wanted.
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
	for _, s := range e.begin(ctx) {
		e.start(s)
	}
	for range workers {
		e.running.Go(func() {
			for e.work(ctx) {
			}
		})
	}
	e.running.Go(func() { e.report(ctx) })
	<-ctx.Done()
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.queue.ShutDown()
	e.running.Wait()
	return nil
}

// work sees to one object; it returns false when there will be no more.
func (e *Engine) work(ctx context.Context) bool {
	key, shutdown := e.queue.Get()
	if shutdown {
		return false
	}
	defer e.queue.Done(key)
	again, err := e.see(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		e.cfg.Logger.V(1).Info("object is tried again", "object", key.String(), "err", err.Error())
		e.queue.AddRateLimited(key)
	case again > 0:
		e.queue.AddAfter(key, again)
	default:
		e.queue.Forget(key)
	}
	return true
}

// share returns what is known of a share, made on first use.
func (e *Engine) share(name string) *share {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.byName[name]
	if !ok {
		s = newShare(e, name)
		e.byName[name] = s
	}
	return s
}

func (e *Engine) find(name string) *share {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byName[name]
}

// begin has shares started from now on, and returns those that are known already.
func (e *Engine) begin(ctx context.Context) []*share {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx = ctx
	return slices.Collect(maps.Values(e.byName))
}

// start has a share follow the cluster, once the engine runs.
func (e *Engine) start(s *share) {
	e.mu.Lock()
	ctx := e.ctx
	e.mu.Unlock()
	if ctx != nil {
		s.restart(ctx)
	}
}

// claim is what one share alone has of a cluster: who shares the same objects by another
// one would have each count for itself, and decide about the same changes.
type claim struct {
	resource  schema.GroupResource
	namespace string
}

// claim has a share have the objects that its spec names, and no others; it returns the
// share that has them already, if there is one. s.mu is held.
func (e *Engine) claim(s *share) (other string) {
	var want claim
	if s.spec != nil && s.spec.Problem == nil {
		want = claim{resource: resourceOf(s.spec).GroupResource(), namespace: s.spec.SpokeNamespace}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, t := range e.byName {
		if t != s && t.claimed == want && want != (claim{}) {
			want, other = claim{}, name
		}
	}
	if s.claimed != want && s.claimed != (claim{}) && !e.ended {
		e.running.Go(func() { e.retryOverlapping(s) })
	}
	s.claimed = want
	return other
}

// retryOverlapping starts the shares whose objects may be nobody else's by now.
func (e *Engine) retryOverlapping(but *share) {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.byName))
	e.mu.Unlock()
	for _, s := range all {
		s.mu.Lock()
		overlaps := s != but && s.problem != nil && s.problem.Reason == syncv1alpha1.ReasonOverlap
		s.mu.Unlock()
		if overlaps {
			e.start(s)
		}
	}
}

// context is that of Run.
func (e *Engine) context() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ctx
}

// spawn runs something that Run waits for; false when it has ended.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.running.Go(f)
	return true
}

// takePlace reports whether an object may ask something of the hub now; if not it is
// looked at again when it may.
func (e *Engine) takePlace(key wire.SharedKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.asked[key]; !ok && len(e.asked) >= maxWrites {
		e.waiting = append(e.waiting, key)
		return false
	}
	e.asked[key] = struct{}{}
	return true
}

// leavePlace withdraws what an object has asked of the hub.
func (e *Engine) leavePlace(key wire.SharedKey) {
	e.writes.Delete(key.String())
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, key)
	if len(e.waiting) > 0 {
		e.queue.Add(e.waiting[0])
		e.waiting = e.waiting[1:]
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
