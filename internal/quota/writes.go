// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"sync"
	"time"
)

// Rate is bytes a second over time, and how many may be written at once before that.
type Rate struct {
	PerSecond int64
	Burst     int64
}

// Writes limits the rate of writes to the hub's store for each owner, by size. A write is
// never split and never refused: its excess delays the next one. It is safe for concurrent
// use; a nil Writes has no bounds.
type Writes struct {
	perOwner, total Rate

	mu            sync.Mutex
	owners        map[string]*bucket // guarded by mu, without owners that have all of their burst
	all           bucket             // guarded by mu
	deletedIdleAt time.Time          // guarded by mu
}

// NewWrites returns a Writes with a bound for one owner and one for all together.
func NewWrites(perOwner, total Rate) *Writes {
	return &Writes{perOwner: perOwner, total: total, owners: map[string]*bucket{}}
}

// Wait returns how long the owner's next write must wait; 0 if it need not. It takes nothing.
func (w *Writes) Wait(owner string) time.Duration {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	wait := w.all.wait(w.total, now)
	if b, ok := w.owners[owner]; ok {
		wait = max(wait, b.wait(w.perOwner, now))
	}
	return wait
}

// Spend records a write of n bytes for the owner.
func (w *Writes) Spend(owner string, n int64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.all.spend(w.total, now, n)
	b, ok := w.owners[owner]
	if !ok {
		w.deleteIdle(now)
		b = &bucket{}
		w.owners[owner] = b
	}
	b.spend(w.perOwner, now, n)
}

// deleteIdle drops the owners whose bucket is full. It runs at most once in the time that a
// bucket needs to be full.
func (w *Writes) deleteIdle(now time.Time) {
	if now.Sub(w.deletedIdleAt) < w.perOwner.duration(w.perOwner.Burst) {
		return
	}
	w.deletedIdleAt = now
	for owner, b := range w.owners {
		if b.refill(w.perOwner, now); b.spent == 0 {
			delete(w.owners, owner)
		}
	}
}

// bucket is a token bucket that may be overdrawn. Its zero value is full.
type bucket struct {
	spent int64 // of the burst; more than the burst is a debt
	at    time.Time
}

func (b *bucket) wait(r Rate, now time.Time) time.Duration {
	b.refill(r, now)
	// A byte that is late makes no debt: who waited would wait anew, for nanoseconds.
	if b.spent <= r.Burst {
		return 0
	}
	return r.duration(b.spent-r.Burst) + 1 // never too short
}

func (b *bucket) spend(r Rate, now time.Time, n int64) {
	b.refill(r, now)
	b.spent += n
}

// refill takes off what came back since the last time. What is less than a byte is
// left for the next.
func (b *bucket) refill(r Rate, now time.Time) {
	back := int64(now.Sub(b.at).Seconds() * float64(r.PerSecond))
	if b.at.IsZero() || back >= b.spent {
		b.spent, b.at = 0, now
		return
	}
	b.spent -= back
	b.at = b.at.Add(r.duration(back))
}

// duration is how long n bytes take.
func (r Rate) duration(n int64) time.Duration {
	return time.Duration(float64(n) / float64(r.PerSecond) * float64(time.Second))
}
