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
	// namespaces of what is asked about, empty for a work without an executor.
	namespaces []string
	// first is the first change of rights since the last review, zero when there
	// was none; last is the last change of all.
	first, last time.Time
	// done is when the last review began; streak counts those that a change asked
	// for since rights last stayed the same.
	done   time.Time
	streak int
}

// of says which namespaces the work writes to in somebody's name. Whether any of them
// is new is what it returns: of changes in that one the work was not told so far.
func (r *reviews) of(namespaces []string) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.namespaces
	r.namespaces = namespaces
	return slices.ContainsFunc(namespaces, func(n string) bool { return !slices.Contains(before, n) })
}

// follows makes the next reviews follow a change that the work was not told of.
func (r *reviews) follows(change time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = latest(r.last, change)
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
	r.first, r.done = time.Time{}, now
	return true
}

// begin begins a review whether or not one is due.
func (r *reviews) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first, r.done = time.Time{}, now
}

// longAgo tells whether the last review is long ago.
func (r *reviews) longAgo(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !now.Before(r.done.Add(longReviewSpace))
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
// another version, or rights have changed. Where nobody watches the rights, what the
// run has to do is taken for a reason to ask.
func (e *Engine) review(w *work, d *desired, order []*step) {
	if d.spec.Executor == nil {
		if w.permits != nil {
			w.permits = nil
			w.reviews.of(nil)
		}
		return
	}
	// The change is read after the namespaces are known: later ones are told.
	if w.reviews.of(judgedIn(order)) {
		w.reviews.follows(e.executors.LastChange())
	}
	now := time.Now()
	switch {
	case !w.permits.areOf(d):
		w.permits = &permits{uid: d.uid, generation: d.generation, confirmed: map[objectID]bool{}}
		w.reviews.begin(now)
	case w.reviews.beginIfDue(now):
		w.permits.expire()
	case !e.executors.Follows() && w.reviews.longAgo(now) && e.hasToDo(w, order):
		w.permits.expire()
		w.reviews.begin(now)
	}
}

// hasToDo tells whether a run writes something, or waits for a right.
func (e *Engine) hasToDo(w *work, order []*step) bool {
	return w.denied.any() || slices.ContainsFunc(order, func(s *step) bool {
		due, _ := e.table.due(s.at.objectID, w.key.String(), s.content, time.Now())
		return due
	})
}

// requeueReviews queues the works whose executors write to a namespace, or anywhere:
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
