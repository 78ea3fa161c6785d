// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import "time"

const (
	// freeRepairs of one object within repairWindow happen at once; after them
	// each waits twice as long as the one before.
	freeRepairs      = 50
	repairWindow     = 10 * time.Minute
	firstRepairDelay = 100 * time.Millisecond
	maxRepairDelay   = time.Minute
)

// repairLimit slows down the repairs of one object that does not stay repaired.
type repairLimit struct {
	count int
	last  time.Time
}

// delay returns how long to wait before the next repair.
func (p *repairLimit) delay(now time.Time) time.Duration {
	if p.count < freeRepairs || now.Sub(p.last) > repairWindow {
		return 0
	}
	delay := maxRepairDelay
	if n := p.count - freeRepairs; n < 10 {
		delay = min(firstRepairDelay<<n, maxRepairDelay)
	}
	return max(0, delay-now.Sub(p.last))
}

// recordRepair counts one repair.
func (p *repairLimit) recordRepair(now time.Time) {
	if now.Sub(p.last) > repairWindow {
		p.count = 0
	}
	p.count++
	p.last = now
}
