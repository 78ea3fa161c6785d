// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"sync"
	"time"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
)

const (
	// changeDelay gathers the changes of one grant: a role and its binding.
	changeDelay = 100 * time.Millisecond
	// secondReviewDelay and lastReviewDelay are when everything is asked again after a change
	// that was asked about: the first answers may be from before it. The last ones
	// are remembered.
	secondReviewDelay = time.Second
	lastReviewDelay   = 10 * time.Second
	// minReviewInterval is between two reviews of a work. After freeReviews in a row it
	// is maxReviewInterval: rights that change without end are not as many questions.
	minReviewInterval = time.Second
	freeReviews       = 10
	maxReviewInterval = 10 * time.Second
)

// reviewSchedule are when the executor of a work is asked about everything again.
type reviewSchedule struct {
	mu sync.Mutex
	// All below are guarded by mu.
	// namespaces of what the executor is asked about, empty for a work without one.
	namespaces []string
	// firstChange is the first change of rights since the last review, zero when there
	// was none; last is the last change of all.
	firstChange, lastChange time.Time
	// driftedAt is the first time since the last review that an object strayed whose
	// work does not learn of changes of rights; zero when there was none.
	driftedAt time.Time
	// lastReview is when the last review began; streak counts those that a change asked
	// for since rights last stayed the same.
	lastReview time.Time
	streak     int
}

// setNamespaces replaces the namespaces that the executor is asked about. added is true
// when one of them is new: the work did not learn of earlier changes of rights there.
func (r *reviewSchedule) setNamespaces(namespaces []string) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.namespaces
	r.namespaces = namespaces
	return slices.ContainsFunc(namespaces, func(n string) bool { return !slices.Contains(before, n) })
}

// addMissedChange has reviews follow a change that the work did not learn of when it came.
func (r *reviewSchedule) addMissedChange(change time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastChange = laterOf(r.lastChange, change)
}

// recordDrift has a review follow an object that strayed, maxReviewInterval after the
// last one at the earliest.
func (r *reviewSchedule) recordDrift(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.driftedAt.IsZero() {
		r.driftedAt = now
	}
}

// recordChange takes note that rights changed in a namespace, or everywhere. It returns
// how long to wait for a review that nobody waits for yet.
func (r *reviewSchedule) recordChange(namespace string, now time.Time) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.namespaces) == 0 || namespace != "" && !slices.Contains(r.namespaces, namespace) {
		return 0, false
	}
	r.lastChange = now
	if !r.firstChange.IsZero() {
		return 0, false
	}
	r.firstChange = now
	return r.nextReview().Sub(now), true
}

// nextReview is when the next review is, zero for never; r.mu is held.
func (r *reviewSchedule) nextReview() time.Time {
	due := r.nextReviewAfterChange()
	if r.driftedAt.IsZero() {
		return due
	}
	strayed := laterOf(r.lastReview.Add(maxReviewInterval), r.driftedAt)
	if due.IsZero() || strayed.Before(due) {
		return strayed
	}
	return due
}

// nextReviewAfterChange is when the next review is because of changes of rights; r.mu is held.
func (r *reviewSchedule) nextReviewAfterChange() time.Time {
	space := minReviewInterval
	if r.streak >= freeReviews {
		space = maxReviewInterval
	}
	earliest := r.lastReview.Add(space)
	switch {
	case !r.firstChange.IsZero():
		return laterOf(earliest, r.firstChange.Add(changeDelay))
	case r.lastChange.IsZero():
		return time.Time{}
	case r.lastReview.Before(r.lastChange.Add(secondReviewDelay)):
		return laterOf(earliest, r.lastChange.Add(secondReviewDelay))
	case r.lastReview.Before(r.lastChange.Add(lastReviewDelay)):
		return laterOf(earliest, r.lastChange.Add(lastReviewDelay))
	default:
		return time.Time{}
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// beginIfDue begins a review if one is due, and tells whether it was.
func (r *reviewSchedule) beginIfDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.nextReview()
	if due.IsZero() || now.Before(due) {
		return false
	}
	if !r.firstChange.IsZero() {
		r.streak++
	}
	if now.Sub(r.lastChange) >= lastReviewDelay {
		r.streak = 0
	}
	r.firstChange, r.driftedAt, r.lastReview = time.Time{}, time.Time{}, now
	return true
}

// begin begins a review whether or not one is due.
func (r *reviewSchedule) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.firstChange, r.driftedAt, r.lastReview = time.Time{}, time.Time{}, now
}

// delay is how long it is until the next review, 0 for none.
func (r *reviewSchedule) delay(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.nextReview()
	if due.IsZero() {
		return 0
	}
	return max(due.Sub(now), time.Millisecond)
}

// beginReview decides what a run of a work asks about: everything when the work is
// another version, or rights have changed; where nobody watches the rights, when an
// object has strayed.
func (e *Engine) beginReview(w *work, d *plan.Spec, order []*plan.Step) {
	if d.ManifestWork.Executor == nil {
		if w.allowed != nil {
			w.allowed = nil
			w.reviews.setNamespaces(nil)
		}
		return
	}
	// LastChange is read after the namespaces are set: of later changes the work learns.
	if w.reviews.setNamespaces(executorNamespaces(order)) {
		w.reviews.addMissedChange(e.executors.LastChange())
	}
	now := time.Now()
	switch {
	case !w.allowed.isFor(d):
		w.allowed = &allowedCache{uid: d.UID, generation: d.Generation, allowed: map[manifest.ObjectID]bool{}}
		w.reviews.begin(now)
	case w.reviews.beginIfDue(now):
		w.allowed.expire()
	}
}

// requeueForReview queues the works whose executors are asked about a namespace:
// what they may do there has changed. It is not called unless the
// changes are watched.
func (e *Engine) requeueForReview(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for key, w := range e.works {
		if wait, ok := w.reviews.recordChange(namespace, now); ok {
			e.queue.AddAfter(key, wait)
		}
	}
}
