// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
)

// planKey is the only item of the plan queue: plans are made of everything.
const planKey = "everything"

type queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

func newQueue[K comparable]() queue[K] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, longestRetry))
}

// registry has the shares and the objects that they publish. The parts of the Controller read
// and change it, and it enqueues what they are to do.
type registry struct {
	cfg Config

	// planQueue has planKey when the input of plans has changed; writeQueue the writes that
	// clusters request, listQueue the namespaces to list, deletionQueue the watches with
	// deletions to verify, and statusQueue the SharedResources whose status may have changed.
	planQueue     queue[string]
	writeQueue    queue[writeKey]
	listQueue     queue[scopeKey]
	deletionQueue queue[watchKey]
	statusQueue   queue[string]

	writeLimiter ratelimit.KeyedLimiter[writeKey]
	logLimiter   ratelimit.LogLimiter

	// runCtx is the context of the watches, which run in running.
	runCtx  context.Context //nolint:containedctx // feeds are started by events
	running sync.WaitGroup

	// mu guards all below, and all shares, watches and scopes. It is taken while a mirror is
	// locked, and sources are locked while it is held.
	mu        sync.Mutex
	state     hubState
	plans     map[string]resourcePlan
	shares    map[shareKey]*share
	byCluster map[string]map[string]*share // by cluster and SharedResource
	watches   map[watchKey]*objectWatch
	// isPlanned: all SharedResources of the start were planned. isComplete: what is not
	// published is absent.
	isPlanned, isComplete bool
}

func newRegistry(cfg Config) *registry {
	return &registry{
		cfg: cfg, planQueue: newQueue[string](), writeQueue: newQueue[writeKey](), listQueue: newQueue[scopeKey](),
		deletionQueue: newQueue[watchKey](), statusQueue: newQueue[string](),
		state: hubState{clusters: map[string]cluster{}, namespaces: map[string]namespace{}},
		plans: map[string]resourcePlan{}, shares: map[shareKey]*share{}, byCluster: map[string]map[string]*share{},
		watches: map[watchKey]*objectWatch{},
	}
}

// startWorkers has workers handle the items of a queue until that is shut down.
func startWorkers[K comparable](c *registry, q queue[K], workers int, handle func(K) error) {
	for range workers {
		c.running.Go(func() {
			for processNextItem(q, handle, c.logRetry) {
			}
		})
	}
}

// processNextItem handles one item; it returns false when the queue is shut down.
func processNextItem[K comparable](q queue[K], handle func(K) error, failed func(error)) bool {
	key, shutdown := q.Get()
	if shutdown {
		return false
	}
	defer q.Done(key)
	if err := handle(key); err != nil {
		failed(err)
		q.AddRateLimited(key)
		return true
	}
	q.Forget(key)
	return true
}

func (c *registry) logRetry(err error) {
	c.cfg.Logger.V(1).Info("Shared objects: will retry", "err", err.Error())
}

// handleSession publishes everything to a cluster that has connected, if its sources are new:
// Sync forgets clusters that are gone.
func (c *registry) handleSession(name string, connected bool) {
	if !connected {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.byCluster[name] {
		s.republish()
	}
	c.completeCluster(name)
}

// checkComplete marks the sources of all clusters as complete, once all shares of the start
// are published: clusters then drop what is not; c.mu is held.
func (c *registry) checkComplete() {
	if c.isComplete || !c.isPlanned {
		return
	}
	for _, s := range c.shares {
		if !s.isSettled() {
			return
		}
	}
	c.isComplete = true
	c.completeClusters()
}

// completeClusters does so for new clusters, too; c.mu is held.
func (c *registry) completeClusters() {
	for name := range c.state.clusters {
		c.completeCluster(name)
	}
}

// completeCluster marks the sources of one cluster as complete, if they are; c.mu is held.
func (c *registry) completeCluster(name string) {
	if _, serves := c.state.clusters[name]; !serves || !c.isComplete {
		return
	}
	c.cfg.Sync.Source(name, wire.KindShare).Complete()
	c.cfg.Sync.Source(name, wire.KindSharedObject).Complete()
}

// syncChangedObject publishes a changed object to all shares of a scope; c.mu is held.
func (c *registry) syncChangedObject(in *scope, name string) {
	for s := range in.shares {
		s.syncObject(name)
		rec := s.requests[name]
		switch {
		case rec != nil && rec.isWithdrawn:
			s.deleteIfWithdrawn(name, rec)
		case rec != nil && rec.pending != nil:
			c.writeQueue.Add(s.writeKey(name))
		case rec == nil && in.objects[name] == nil:
			c.writeLimiter.Forget(s.writeKey(name))
		}
	}
}

// publishScope publishes all objects of a scope to its shares; c.mu is held.
func (c *registry) publishScope(in *scope) {
	for s := range in.shares {
		s.publishObjects()
	}
}
