// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/rbacwatch"
	"github.com/spokelet/spokelet/internal/watcher"
)

// followDefinitions has the views try again whose resource does not exist, when the
// definition of one changes. As with rights, the API server serves what is new a moment
// after its event.
func (e *Engine) followDefinitions(ctx context.Context) {
	crds := e.cfg.Metadata.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	schedule := rbacwatch.NewSchedule(func(context.Context) { e.resolveAgain() })
	follower := &watcher.Follower{
		Feed: watcher.FeedOf(crds, nil), Sink: definitions{schedule: schedule, engine: e}, Log: e.cfg.Logger,
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { follower.Run(ctx) })
	schedule.Run(ctx)
}

// definitions is a watcher.Sink that keeps nothing.
type definitions struct {
	schedule *rbacwatch.Schedule
	engine   *Engine
}

// Begin implements watcher.Sink.
func (definitions) Begin() {}

// End implements watcher.Sink.
func (definitions) End(string) {}

// Event implements watcher.Sink.
func (d definitions) Event(metav1.Object, bool) { d.schedule.Trigger() }

// Refused implements watcher.Sink.
func (d definitions) Refused(err error) {
	d.engine.cfg.Logger.Info("views of resources that do not exist wait: definitions cannot be watched", "err", err.Error())
}

// resolveAgain has the views try again whose resource does not exist, or was being looked
// up when the definition came.
func (e *Engine) resolveAgain() {
	e.cfg.Resources.Reset()
	for _, v := range e.snapshot() {
		if v.refusedFor(wire.CauseTarget) || !v.answered() {
			v.retry()
		}
	}
}

// answered reports whether a view has had an answer.
func (v *view) answered() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.body != nil
}
