// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Engine answers the views of a hub.
type Engine struct {
	cfg         Config
	source      *resource.Source
	mirror      *resource.Mirror
	initialSync initialSync
	memory      memoryBudget
	// decoding is locked while a record of Helm is decoded: only one is in memory at a time.
	decoding sync.Mutex

	// rights runs while a view runs, definitions while one is refused because the
	// cluster has no such resource.
	rights, definitions sharedTask
	goroutines          sync.WaitGroup

	// mu is taken before the mu of a view.
	mu sync.Mutex
	// All below are guarded by mu.
	ctx   context.Context  // of Run; nil before it and after its end
	views map[string]*view // by key
	// running counts the views that have a goroutine, at most maxViews.
	running, maxViews int
}

// New returns an engine without views, which sends no requests.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, source: resource.NewSource(wire.KindViewResult),
		memory: memoryBudget{limit: maxMemory}, maxViews: maxViews, views: map[string]*view{},
	}
	e.initialSync = initialSync{complete: e.source.Complete, pending: map[string]struct{}{}}
	e.rights = sharedTask{run: e.watchRights, goroutines: &e.goroutines}
	e.definitions = sharedTask{run: e.watchDefinitions, goroutines: &e.goroutines}
	e.mirror = resource.NewMirror(wire.KindView, resource.Receiver{Put: e.putView, Delete: e.deleteView, Synced: e.initialSync.setSynced})
	return e, nil
}

// Source publishes the answers.
func (e *Engine) Source() *resource.Source { return e.source }

// Mirror receives the views.
func (e *Engine) Mirror() *resource.Mirror { return e.mirror }

// Run runs the views until ctx ends. It is called once; earlier views wait for it.
func (e *Engine) Run(ctx context.Context) error {
	e.startAll(ctx)
	<-ctx.Done()
	e.stopStarting()
	e.goroutines.Wait()
	return nil
}

// stopStarting prevents further views from being started.
func (e *Engine) stopStarting() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx = nil
}

// startAll starts the views that wait.
func (e *Engine) startAll(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx = ctx
	e.rights.ctx = e.ctx
	e.definitions.ctx = e.ctx
	for _, v := range e.sortedViews() {
		e.startView(v)
	}
}

// putView adds a view, or a new generation of one: another object of the hub asks for the
// same.
func (e *Engine) putView(r resource.Resource) {
	spec, err := wire.DecodeView(r.Body)
	if err != nil {
		e.cfg.Logger.Error(err, "View is invalid", "key", r.Key)
		e.publish(r.Key, r.Generation, encodeRefusal(wire.Refuse(wire.CauseTarget, metav1.StatusReasonInvalid, err.Error())))
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if v, ok := e.views[r.Key]; ok {
		v.setGeneration(r.Generation)
		return
	}
	e.initialSync.add(r.Key)
	v := newView(e, r.Key, spec, r.Generation)
	e.views[r.Key] = v
	e.startView(v)
}

// startView runs a view if the limit allows one more. The caller holds e.mu.
func (e *Engine) startView(v *view) {
	if e.ctx == nil {
		return
	}
	if e.running >= e.maxViews {
		message := fmt.Sprintf("the agent runs %d views already, which is the limit", e.maxViews)
		v.refuse(wire.Refuse(wire.CauseLimit, metav1.StatusReasonTooManyRequests, message))
		return
	}
	e.running++
	e.rights.acquire()
	ctx, cancel := context.WithCancel(e.ctx)
	v.stop = cancel
	e.goroutines.Go(func() { v.run(ctx) })
}

// deleteView stops a view and lets another one start.
func (e *Engine) deleteView(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v, ok := e.views[key]; ok {
		delete(e.views, key)
		v.close()
		if v.stop != nil {
			v.stop()
			e.running--
			e.rights.release()
			e.startWaiting()
		}
	}
	e.source.Delete(key)
	e.initialSync.done(key)
}

// startWaiting starts one of the views that wait, and retries one of those that did not fit
// into memory. The caller holds e.mu.
func (e *Engine) startWaiting() {
	started, retried := len(e.views) == e.running, e.memory.waiting.Load() == 0
	if started && retried {
		return
	}
	for _, v := range e.views {
		switch {
		case v.stop == nil && !started:
			started = true
			e.startView(v)
		case v.stop != nil && !retried && v.isRefusedFor(wire.CauseLimit):
			retried = true
			v.retry()
		}
	}
}

// sortedViews returns the views in the order of their keys. The caller holds e.mu.
func (e *Engine) sortedViews() []*view {
	views := make([]*view, 0, len(e.views))
	for _, key := range slices.Sorted(maps.Keys(e.views)) {
		views = append(views, e.views[key])
	}
	return views
}

// listViews returns the present views.
func (e *Engine) listViews() []*view {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sortedViews()
}

// publish passes an answer to Sync.
func (e *Engine) publish(key string, generation int64, body []byte) {
	if err := e.source.Put(resource.Resource{Key: key, Generation: generation, Body: body}); err != nil {
		e.cfg.Logger.Error(err, "Answer of a view cannot be published", "key", key)
	}
	e.initialSync.done(key)
}
