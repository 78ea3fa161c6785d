// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"sync"
	"time"

	"github.com/spokelet/spokelet/api/wire"
)

// patience is how long an action may take before its progress is published: the status of
// one that is done at once is written once.
const patience = 2 * time.Second

// teller publishes the progress of an action that takes long.
type teller struct {
	publish func(what string)
	timer   *time.Timer

	mu   sync.Mutex
	what string // guarded by mu
	late bool   // guarded by mu
}

func (e *Engine) teller(r *request) *teller {
	t := &teller{publish: func(what string) { e.tell(r, what) }}
	t.timer = time.AfterFunc(patience, func() { t.change(func() { t.late = true }) })
	return t
}

// tell publishes what becomes of an action for now.
func (e *Engine) tell(r *request, what string) {
	if err := e.publish(r, wire.Progressing(what)); err != nil {
		e.cfg.Logger.Error(err, "Progress of an action cannot be published", "key", r.key)
	}
}

// say takes what is being done.
func (t *teller) say(what string) { t.change(func() { t.what = what }) }

// change publishes what is being done, if it takes long.
func (t *teller) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
	if t.late && t.what != "" {
		t.publish(t.what)
	}
}

// stop has nothing published any more, but what is being published. An engine drops that
// if the action was answered.
func (t *teller) stop() { t.timer.Stop() }
