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

// watchDefinitions retries the views whose resource does not exist when a definition
// changes. The API server serves a new resource a moment after the event, as with rights.
func (e *Engine) watchDefinitions(ctx context.Context) {
	crds := e.cfg.Metadata.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	schedule := rbacwatch.NewSchedule(func(context.Context) { e.retryUnresolved() })
	follower := &watcher.Watcher{
		ListWatch: watcher.NewListWatch(crds, nil), Handler: definitionSink{schedule: schedule, engine: e}, Log: e.cfg.Logger,
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { follower.Run(ctx) })
	schedule.Run(ctx)
}

// definitionSink is a watcher.Handler that keeps nothing.
type definitionSink struct {
	schedule *rbacwatch.Schedule
	engine   *Engine
}

func (definitionSink) StartSync() {}

func (definitionSink) FinishSync(string) {}

func (d definitionSink) HandleEvent(metav1.Object, bool) { d.schedule.Trigger() }

func (d definitionSink) HandleDenied(err error) {
	d.engine.cfg.Logger.Info("Definitions of resources cannot be watched: views of new resources are delayed", "err", err.Error())
}

// retryUnresolved retries the views whose resource does not exist, or was being resolved when
// the definition changed.
func (e *Engine) retryUnresolved() {
	e.cfg.Resources.Reset()
	for _, v := range e.listViews() {
		if v.isRefusedFor(wire.CauseTarget) || !v.hasAnswer() {
			v.retry()
		}
	}
}

// hasAnswer reports whether an answer was published.
func (v *view) hasAnswer() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.body != nil
}
