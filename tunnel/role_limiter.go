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

// roleLimiter applies the role changes of one session: the first few at once, more at a
// steady rate, where only the latest counts.
type roleLimiter struct {
	apply func(standby bool)

	mu      sync.Mutex
	limiter *rate.Limiter // guarded by mu
	// timer is set while a change waits; guarded by mu.
	timer *time.Timer
	// latest is the change that waits. wasStandby says that the process was a standby at
	// some time since the last change was applied. Guarded by mu.
	latest, wasStandby bool
	stopped            bool // guarded by mu
}

func newRoleLimiter(act func(standby bool)) *roleLimiter {
	return &roleLimiter{apply: act, limiter: rate.NewLimiter(rolesPerSecond, roleBurst)}
}

// set records a change and applies it if the rate allows. Calls of apply never overlap.
func (p *roleLimiter) set(standby bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.latest, p.wasStandby = standby, p.wasStandby || standby
	if p.timer != nil {
		return
	}
	if wait := p.limiter.Reserve().Delay(); wait > 0 {
		p.timer = time.AfterFunc(wait, p.flush)
		return
	}
	p.applyLatest()
}

// flush applies the change that waits.
func (p *roleLimiter) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.stopped {
		p.applyLatest()
	}
}

// applyLatest applies the latest change; p.mu is held. It reports a term that has ended
// even when the next has begun since: Sync of the next term begins only then.
func (p *roleLimiter) applyLatest() {
	if p.wasStandby && !p.latest {
		p.apply(true)
	}
	p.wasStandby = false
	p.apply(p.latest)
}

// stop drops the change that waits and those to come.
func (p *roleLimiter) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
