// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"sync"
	"time"

	"github.com/spokelet/spokelet/api/wire"
)

// progressDelay is how long an action may take before its progress is published: the status of
// one that is done at once is written once.
const progressDelay = 2 * time.Second

// progressReporter publishes the progress of an action that takes long.
type progressReporter struct {
	publish func(what string)
	timer   *time.Timer

	mu    sync.Mutex
	what  string // guarded by mu
	isDue bool   // guarded by mu
}

func (e *Engine) newProgressReporter(r *request) *progressReporter {
	p := &progressReporter{publish: func(what string) { e.reportProgress(r, what) }}
	p.timer = time.AfterFunc(progressDelay, func() { p.update(func() { p.isDue = true }) })
	return p
}

// reportProgress publishes what becomes of an action for now.
func (e *Engine) reportProgress(r *request, what string) {
	if err := e.publish(r, wire.Progressing(what)); err != nil {
		e.cfg.Logger.Error(err, "Progress of an action cannot be published", "key", r.key)
	}
}

// report takes what is being done.
func (p *progressReporter) report(what string) { p.update(func() { p.what = what }) }

// update publishes what is being done, if it takes long.
func (p *progressReporter) update(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
	if p.isDue && p.what != "" {
		p.publish(p.what)
	}
}

// stop has nothing published any more, but what is being published. An engine drops that
// if the action was answered.
func (p *progressReporter) stop() { p.timer.Stop() }
