// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"sync"
	"time"
)

const (
	// reviewPause gathers the changes of one grant: a role and its binding.
	reviewPause = 100 * time.Millisecond
	// reviewAgain and reviewLast are when everything is asked again after a change
	// that was asked about: the first answers may be from before it. The last ones
	// are remembered.
	reviewAgain = time.Second
	reviewLast  = 10 * time.Second
	// reviewSpace is between two reviews of a work. After freeReviews in a row it
	// is longReviewSpace: rights that change without end are not as many questions.
	reviewSpace     = time.Second
	freeReviews     = 10
	longReviewSpace = 10 * time.Second
)

// reviews are when the executor of a work is asked about everything again.
type reviews struct {
	mu sync.Mutex
	// All below are guarded by mu.
	// namespaces of what the executor is asked about, empty for a work without one.
	namespaces []string
	// first is the first change of rights since the last review, zero when there
	// was none; last is the last change of all.
	first, last time.Time
	// strayed is the first time since the last review that an object strayed whose
	// work does not learn of changes of rights; zero when there was none.
	strayed time.Time
	// done is when the last review began; streak counts those that a change asked
	// for since rights last stayed the same.
	done   time.Time
	streak int
}

// setNamespaces replaces the namespaces that the executor is asked about. added is true
// when one of them is new: the work did not learn of earlier changes of rights there.
func (r *reviews) setNamespaces(namespaces []string) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.namespaces
	r.namespaces = namespaces
	return slices.ContainsFunc(namespaces, func(n string) bool { return !slices.Contains(before, n) })
}

// noteChange has reviews follow a change that the work did not learn of when it came.
func (r *reviews) noteChange(change time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = latest(r.last, change)
}

// noteStrayed has a review follow an object that strayed, longReviewSpace after the
// last one at the earliest.
func (r *reviews) noteStrayed(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strayed.IsZero() {
		r.strayed = now
	}
}

// change takes note that rights changed in a namespace, or everywhere. It returns
// how long to wait for a review that nobody waits for yet.
func (r *reviews) change(namespace string, now time.Time) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.namespaces) == 0 || namespace != "" && !slices.Contains(r.namespaces, namespace) {
		return 0, false
	}
	r.last = now
	if !r.first.IsZero() {
		return 0, false
	}
	r.first = now
	return r.due().Sub(now), true
}

// due is when the next review is, zero for never; r.mu is held.
func (r *reviews) due() time.Time {
	due := r.dueByChange()
	if r.strayed.IsZero() {
		return due
	}
	strayed := latest(r.done.Add(longReviewSpace), r.strayed)
	if due.IsZero() || strayed.Before(due) {
		return strayed
	}
	return due
}

// dueByChange is when the next review is because of changes of rights; r.mu is held.
func (r *reviews) dueByChange() time.Time {
	space := reviewSpace
	if r.streak >= freeReviews {
		space = longReviewSpace
	}
	earliest := r.done.Add(space)
	switch {
	case !r.first.IsZero():
		return latest(earliest, r.first.Add(reviewPause))
	case r.last.IsZero():
		return time.Time{}
	case r.done.Before(r.last.Add(reviewAgain)):
		return latest(earliest, r.last.Add(reviewAgain))
	case r.done.Before(r.last.Add(reviewLast)):
		return latest(earliest, r.last.Add(reviewLast))
	default:
		return time.Time{}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// beginIfDue begins a review if one is due, and tells whether it was.
func (r *reviews) beginIfDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.due()
	if due.IsZero() || now.Before(due) {
		return false
	}
	if !r.first.IsZero() {
		r.streak++
	}
	if now.Sub(r.last) >= reviewLast {
		r.streak = 0
	}
	r.first, r.strayed, r.done = time.Time{}, time.Time{}, now
	return true
}

// begin begins a review whether or not one is due.
func (r *reviews) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first, r.strayed, r.done = time.Time{}, time.Time{}, now
}

// wait is how long it is until the next review, 0 for none.
func (r *reviews) wait(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.due()
	if due.IsZero() {
		return 0
	}
	return max(due.Sub(now), time.Millisecond)
}

// review decides what a run of a work asks about: everything when the work is
// another version, or rights have changed; where nobody watches the rights, when an
// object has strayed.
func (e *Engine) review(w *work, d *desired, order []*step) {
	if d.spec.Executor == nil {
		if w.permits != nil {
			w.permits = nil
			w.reviews.setNamespaces(nil)
		}
		return
	}
	// LastChange is read after the namespaces are set: of later changes the work learns.
	if w.reviews.setNamespaces(executorNamespaces(order)) {
		w.reviews.noteChange(e.executors.LastChange())
	}
	now := time.Now()
	switch {
	case !w.permits.areOf(d):
		w.permits = &permits{uid: d.uid, generation: d.generation, confirmed: map[objectID]bool{}}
		w.reviews.begin(now)
	case w.reviews.beginIfDue(now):
		w.permits.expire()
	}
}

// requeueReviews queues the works whose executors are asked about a namespace:
// what they may do there has changed. It is not called unless the
// changes are watched.
func (e *Engine) requeueReviews(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for key, w := range e.works {
		if wait, ok := w.reviews.change(namespace, now); ok {
			e.queue.AddAfter(key, wait)
		}
	}
}
