// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// roleBurst and rolesPerSecond bound how often one session may change the role of its
// process: a lease in the spoke changes hands every few seconds at most, and each
// change has the hub begin Sync anew.
const (
	roleBurst      = 4
	rolesPerSecond = 1
)

// rolePace has the changes of one session's role acted upon: at once as long as they
// are few, and later at a steady rate, when the latest counts.
type rolePace struct {
	act func(standby bool)

	mu     sync.Mutex
	bucket *rate.Limiter // guarded by mu
	// timer is set while a change waits; guarded by mu.
	timer *time.Timer
	// latest is the change that waits, and stoodBy tells that the process stood by at some
	// time since the last that was acted upon; guarded by mu.
	latest, stoodBy bool
	stopped         bool // guarded by mu
}

func newRolePace(act func(standby bool)) *rolePace {
	return &rolePace{act: act, bucket: rate.NewLimiter(rolesPerSecond, roleBurst)}
}

// change takes what an agent says of its role. act is called one at a time.
func (p *rolePace) change(standby bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.latest, p.stoodBy = standby, p.stoodBy || standby
	if p.timer != nil {
		return
	}
	if wait := p.bucket.Reserve().Delay(); wait > 0 {
		p.timer = time.AfterFunc(wait, p.due)
		return
	}
	p.notify()
}

// due acts upon what came last.
func (p *rolePace) due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.stopped {
		p.notify()
	}
}

// notify acts; p.mu is held. A term that has ended is told of even where another has
// begun since: Sync of the next one begins only then.
func (p *rolePace) notify() {
	if p.stoodBy && !p.latest {
		p.act(true)
	}
	p.stoodBy = false
	p.act(p.latest)
}

// stop has nothing acted upon any more.
func (p *rolePace) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
