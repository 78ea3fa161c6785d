// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import "time"

const (
	// freeRepairs of one object within repairWindow happen at once; after them
	// each waits twice as long as the one before.
	freeRepairs   = 50
	repairWindow  = 10 * time.Minute
	firstDamping  = 100 * time.Millisecond
	longestDamped = time.Minute
)

// pace slows down the repairs of one object that does not stay repaired.
type pace struct {
	spent int
	last  time.Time
}

// wait returns how long to wait before the next repair.
func (p *pace) wait(now time.Time) time.Duration {
	if p.spent < freeRepairs || now.Sub(p.last) > repairWindow {
		return 0
	}
	delay := longestDamped
	if n := p.spent - freeRepairs; n < 10 {
		delay = min(firstDamping<<n, longestDamped)
	}
	return max(0, delay-now.Sub(p.last))
}

// spend counts one repair.
func (p *pace) spend(now time.Time) {
	if now.Sub(p.last) > repairWindow {
		p.spent = 0
	}
	p.spent++
	p.last = now
}
