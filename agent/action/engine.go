// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Engine executes the actions of a hub.
type Engine struct {
	cfg    Config
	source *resource.Source
	mirror *resource.Mirror
	// queues are that of actions on objects, and that of actions of Helm, which take long.
	queues [2]workqueue.TypedRateLimitingInterface[string]
	log    *actionLog

	mu sync.Mutex
	// All below are guarded by mu.
	//
	// requests has the actions of the hub, by key, and entries the names of their entries.
	requests map[string]*request
	entries  map[string]struct{}
	// sizes are the bytes of the objects in the published results, by key; held is their
	// sum.
	sizes       map[string]int
	totalSize   int
	refreshedAt time.Time // see relearn
	// openReleases counts the actions of Helm that are not answered.
	openReleases int
}

// New returns an engine without actions, which sends no request before Run.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, source: resource.NewSource(wire.KindActionResult),
		requests: map[string]*request{}, entries: map[string]struct{}{}, sizes: map[string]int{},
	}
	for i := range e.queues {
		e.queues[i] = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff))
	}
	e.log = newActionLog(cfg, e.isWanted)
	e.mirror = resource.NewMirror(wire.KindAction, resource.Receiver{Put: e.putAction, Delete: e.deleteAction, Synced: e.setSynced})
	return e, nil
}

// Source publishes the results.
func (e *Engine) Source() *resource.Source { return e.source }

// Mirror receives the actions.
func (e *Engine) Mirror() *resource.Mirror { return e.mirror }

// Run executes actions until ctx ends, and waits for those that are being executed. An engine
// runs once.
func (e *Engine) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { e.log.run(ctx) })
	for l, most := range map[queueKind]int{objectQueue: workers, releaseQueue: releaseWorkers} {
		for range most {
			running.Go(func() {
				for e.processNext(ctx, l) {
				}
			})
		}
	}
	<-ctx.Done()
	e.shutDown()
	running.Wait()
	return nil
}

// shutDown shuts the queues down.
func (e *Engine) shutDown() {
	for _, queue := range e.queues {
		queue.ShutDown()
	}
}

func (e *Engine) putAction(version resource.Resource) {
	r := decodeRequest(version)
	e.mu.Lock()
	e.removeRequest(r.key)
	e.requests[r.key], e.entries[r.entryName()] = &r, struct{}{}
	waits := false
	if r.queue() == releaseQueue {
		e.openReleases++
		waits = e.openReleases > releaseWorkers
	}
	e.mu.Unlock()
	if waits {
		e.reportProgress(&r, "waiting for other releases of this cluster")
	}
	queue := e.queues[r.queue()]
	queue.Forget(r.key) // the attempts at the version before do not count
	queue.Add(r.key)
}

func (e *Engine) deleteAction(key string) {
	e.mu.Lock()
	e.removeRequest(key)
	e.mu.Unlock()
	for _, queue := range e.queues {
		queue.Add(key) // a worker that executes it publishes first
	}
}

// removeRequest removes the action of a key. The caller holds e.mu.
func (e *Engine) removeRequest(key string) {
	if r, ok := e.requests[key]; ok {
		e.finishRelease(r)
		delete(e.requests, key)
		delete(e.entries, r.entryName())
	}
}

// finishRelease updates the count of open actions of Helm. The caller holds e.mu.
func (e *Engine) finishRelease(r *request) {
	if r.queue() == releaseQueue {
		e.openReleases--
	}
}

func (e *Engine) setSynced() {
	e.source.Complete()
	e.log.setSynced()
}

// isWanted reports whether the hub has the action of an entry.
func (e *Engine) isWanted(entryName string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.entries[entryName]
	return ok
}

// request returns nil if the hub does not have the action any more.
func (e *Engine) request(key string) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests[key]
}

// processNext executes the next action of a queue. A queue passes no key to two workers at once; a
// version in the other queue does not wait, and the result of an earlier one is dropped.
func (e *Engine) processNext(ctx context.Context, l queueKind) bool {
	queue := e.queues[l]
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	err := e.process(ctx, key, l)
	var unread *staleDiscoveryError
	switch {
	case err == nil:
		queue.Forget(key)
	case ctx.Err() != nil:
	case errors.As(err, &unread):
		queue.AddAfter(key, unread.retryAfter)
	default:
		e.cfg.Logger.Error(err, "Action is retried", "key", key)
		queue.AddRateLimited(key)
	}
	return true
}

// process publishes the result of one action. After an error it is to be retried.
func (e *Engine) process(ctx context.Context, key string, l queueKind) error {
	r := e.request(key)
	switch {
	case r == nil:
		e.unpublish(key)
		return nil
	case r.answered, r.queue() != l: // a retry of an earlier version
		return nil
	case r.invalid != nil:
		return e.publish(r, wire.ActionResult{Refusal: wire.Refuse(wire.CauseTarget, "", r.invalid.Error())})
	}
	result, err := e.run(ctx, r)
	if err != nil {
		return err
	}
	return e.publish(r, result)
}

// run executes an action. After an error it is to be retried.
func (e *Engine) run(ctx context.Context, r *request) (wire.ActionResult, error) {
	if r.queue() == releaseQueue {
		return e.executeRelease(ctx, r)
	}
	return e.execute(ctx, *r)
}

// unpublish removes the result of a key whose action the hub does not have any more.
func (e *Engine) unpublish(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requests[key] == nil {
		e.reserveSize(key, 0)
		e.source.Delete(key)
	}
}

// publish passes a result to Sync, unless another version was received meanwhile. It drops
// the template of an answered action.
func (e *Engine) publish(r *request, result wire.ActionResult) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requests[r.key] != r {
		return nil
	}
	if !e.reserveSize(r.key, len(result.Result)) {
		result.Result, result.Omitted = nil, true
	}
	body, err := json.Marshal(result)
	if err == nil {
		err = e.source.Put(resource.Resource{Key: r.key, UID: r.uid, Generation: r.generation, Body: body})
	}
	if err != nil {
		return fmt.Errorf("publish result of action %s: %w", r.key, err)
	}
	if result.Progress == "" {
		e.finishRelease(r)
		e.requests[r.key] = &request{key: r.key, uid: r.uid, generation: r.generation, answered: true}
	}
	return nil
}

// reserveSize replaces the size of the object of a key, and reports whether it fits. Results stay
// in memory for as long as the hub has their actions. The caller holds e.mu.
func (e *Engine) reserveSize(key string, size int) bool {
	e.totalSize -= e.sizes[key]
	delete(e.sizes, key)
	if size == 0 || e.totalSize+size > maxTotalSize {
		return size == 0
	}
	e.sizes[key] = size
	e.totalSize += size
	return true
}

// isPersistent reports whether an API server keeps answering with an internal error.
func (e *Engine) isPersistent(r request, err error) bool {
	return apierrors.IsInternalError(err) && e.triesExhausted(r)
}

// triesExhausted reports whether an action may not be retried any more.
func (e *Engine) triesExhausted(r request) bool {
	return e.queues[r.queue()].NumRequeues(r.key) >= maxTries
}

// refreshDiscovery reads discovery again, because a path is not served. It does nothing within
// minRefreshInterval of the last time, because a requester may cause it.
func (e *Engine) refreshDiscovery() {
	e.mu.Lock()
	recent := !e.refreshedAt.IsZero() && time.Since(e.refreshedAt) < minRefreshInterval
	if !recent {
		e.refreshedAt = time.Now()
	}
	e.mu.Unlock()
	if !recent {
		e.cfg.Resources.Reset() // without the lock: it waits for a refresh, which Sync must not
	}
}

// staleDiscoveryError is returned for a resource that may be served since discovery was read.
type staleDiscoveryError struct {
	cause      error
	retryAfter time.Duration
}

func (e *staleDiscoveryError) Error() string { return e.cause.Error() }

// checkStale returns an staleDiscoveryError if discovery was read before the request was received.
func checkStale(r request, err error) error {
	var none *mapping.NoMatchError
	if errors.As(err, &none) && none.ReadAt.Before(r.received) {
		return &staleDiscoveryError{cause: err, retryAfter: none.RetryAfter}
	}
	return err
}
