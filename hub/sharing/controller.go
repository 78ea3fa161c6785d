// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"time"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Controller shares objects with clusters. It is a manager.Runnable. It starts its parts, each
// of which handles one queue: they know the registry, and not each other.
type Controller struct {
	*registry

	planning  *planController
	writes    *writeExecutor
	scopes    *scopeLister
	deletions *deletionVerifier
	statuses  *statusWriter
}

// New returns a Controller and declares the kinds of shares in Sync.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := newRegistry(cfg)
	c := &Controller{
		registry: r, planning: newPlanController(r), writes: &writeExecutor{registry: r}, scopes: &scopeLister{registry: r},
		deletions: &deletionVerifier{registry: r}, statuses: &statusWriter{registry: r, written: map[string]time.Time{}},
	}
	cfg.Sync.Publish(wire.KindShare, c.loadShare)
	cfg.Sync.Publish(wire.KindSharedObject, c.loadObject)
	// Before all shares are known, so is not which writes clusters may request.
	cfg.Sync.Mirror(wire.KindSharedWrite, resource.HubReceiver{
		Put: c.writes.handleWrite, Keeps: true, Delete: c.writes.handleWriteWithdrawal, Known: c.writes.isKnownWrite, After: wire.KindSharedObject,
	})
	cfg.Sync.Mirror(wire.KindShareState, resource.HubReceiver{Put: c.statuses.handleState, About: wire.KindShare, After: wire.KindShare})
	return c, nil
}

// Start runs until ctx ends; the manager calls it once its caches are filled.
func (c *Controller) Start(ctx context.Context) error {
	defer c.shutDown()
	if err := c.planning.startWatches(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.runCtx = ctx
	follower := &watcher.Watcher{
		ListWatch: watcher.NewListWatch(c.cfg.Dynamic.Resource(definitionsResource()), nil), Handler: &definitionSink{plans: c.planning}, Log: c.cfg.Logger,
	}
	c.running.Go(func() { follower.Run(ctx) })
	cancel := c.cfg.Sessions.Subscribe(c.handleSession)
	defer cancel()
	startWorkers(c.registry, c.planQueue, 1, func(string) error { return c.planning.updatePlans(ctx) })
	startWorkers(c.registry, c.writeQueue, writeWorkers, func(key writeKey) error { return c.writes.executeWrite(ctx, key) })
	startWorkers(c.registry, c.listQueue, listWorkers, func(key scopeKey) error { return c.scopes.listScope(ctx, key) })
	startWorkers(c.registry, c.deletionQueue, deletionWorkers, func(key watchKey) error { return c.deletions.verifyDeletions(ctx, key) })
	startWorkers(c.registry, c.statusQueue, statusWorkers, func(name string) error { return c.statuses.writeStatus(ctx, name) })
	<-ctx.Done()
	return nil
}

func (c *Controller) shutDown() {
	c.planQueue.ShutDown()
	c.writeQueue.ShutDown()
	c.listQueue.ShutDown()
	c.deletionQueue.ShutDown()
	c.statusQueue.ShutDown()
	c.running.Wait()
}
