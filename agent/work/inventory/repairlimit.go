// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"time"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

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

// IsDamped tells whether repairs of an object are slowed down.
func (inv *Inventory) IsDamped(id manifest.ObjectID, now time.Time) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	return ok && o.repairs.count > freeRepairs && now.Sub(o.repairs.last) <= repairWindow
}

// SetContention records who changes an object that does not stay repaired.
func (inv *Inventory) SetContention(id manifest.ObjectID, by string) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if o, ok := inv.objects[id]; ok && o.contention != by {
		o.contention = by
		r.addStatuses(o)
	}
	return r
}

// ContendedBy says who changes an object, empty once it has stayed repaired for a while.
func (inv *Inventory) ContendedBy(id manifest.ObjectID) string {
	by, _ := inv.Contention(id, time.Now())
	return by
}

// Contention says so, and how long it is said at most if the object stays repaired.
func (inv *Inventory) Contention(id manifest.ObjectID, now time.Time) (by string, left time.Duration) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok || o.contention == "" {
		return "", 0
	}
	if left = o.repairs.last.Add(repairWindow).Sub(now); left <= 0 {
		o.contention = ""
		return "", 0
	}
	return o.contention, left
}
