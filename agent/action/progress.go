// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"sync"
	"time"

	"github.com/spokelet/spokelet/api/wire"
)

// progressDelay is the time after which the progress of an action is published: the status of a
// short one is written once.
const progressDelay = 2 * time.Second

// progressReporter publishes the progress of a long action.
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

// reportProgress publishes the progress of an action.
func (e *Engine) reportProgress(r *request, what string) {
	if err := e.publish(r, wire.Progressing(what)); err != nil {
		e.cfg.Logger.Error(err, "Progress of an action cannot be published", "key", r.key)
	}
}

// report sets the progress.
func (p *progressReporter) report(what string) { p.update(func() { p.what = what }) }

// update publishes the progress of a long action.
func (p *progressReporter) update(how func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how()
	if p.isDue && p.what != "" {
		p.publish(p.what)
	}
}

// stop ends the publishing. The engine drops a progress that is published after the answer.
func (p *progressReporter) stop() { p.timer.Stop() }
