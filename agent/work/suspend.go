// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// suspend leaves everything of a work as it is, whatever is wanted of it, and goes on
// telling of what was applied. The one thing that may be written is the record of what
// was applied before: without it a restart would not know.
func (e *Engine) suspend(ctx context.Context, w *work, d *desired) error {
	known := w.knows(d.uid)
	var unread error
	if !known || w.recallAgain {
		unread = e.recallApplied(ctx, w, d)
		w.recallAgain = unread != nil
	}
	w.setSuspended(d)
	e.publish(w)
	if known && !w.isSeenOnly() && w.anchor != nil && !w.anchor.deleting {
		// Who wrote a shared object last is known to whom has seen the writes.
		if err := w.lost(e.recordYields(ctx, w)); err != nil {
			return errors.Join(unread, err)
		}
	}
	return errors.Join(unread, e.recordComplete(ctx, w))
}

// recallApplied concludes what can be told of a suspended work that this process has not
// applied: of the objects that the anchor lists, as far as the manifests name them.
// What the hub was told of Applied stays there; it is not known here.
func (e *Engine) recallApplied(ctx context.Context, w *work, d *desired) error {
	if w.anchor == nil || w.anchor.deleting || d.refusal != nil {
		return nil
	}
	// Rules report for the generation that was applied, as the objects are of that.
	was := *d
	was.generation, was.reportsDrift = d.applied, false
	steps := plan(ctx, d.manifests, e.spoke.kinds.resolve, e.cfg.Namespaces)
	e.equip(w, &was, steps)
	e.await(w, steps)
	for i := range steps {
		s := &steps[i]
		if _, listed := w.anchor.tracked[s.at.objectID]; !listed || s.err != nil {
			continue
		}
		e.table.intend(s.at.objectID, w.key.String(), s.intent())
		if err := e.reread(ctx, s); err != nil {
			s.err = &FetchError{Err: err}
		}
	}
	out := w.outcomesOf(steps, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold(&was, out)
	w.seenOnly = true
	return failure(steps)
}

// knows tells whether something is concluded of the work of a UID.
func (w *work) knows(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.concluded != nil && w.concluded.uid == uid
}

func (w *work) isSeenOnly() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seenOnly
}

// writes tells whether what is wanted may change anything in the spoke. A work that the
// hub does not know is evicted.
func (d *desired) writes() bool {
	return d == nil || !d.suspended && (!d.reportsDrift || d.deleting)
}

// setSuspended has the status say that the work is suspended, or with nil that it is not.
// A deletion that was under way is told of no more: it is not.
func (w *work) setSuspended(d *desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.suspended = d; d != nil {
		w.leaving = nil
	}
}

// about is the work and the generation that a status is about. Of a suspended work it is
// what is wanted now, lest the hub takes the status for an old one; its conditions say
// which generation was applied. w.mu is held.
func (w *work) about() (uid string, generation int64) {
	if w.suspended != nil {
		return w.suspended.uid, w.suspended.generation
	}
	return w.concluded.uid, w.observed
}

// unapplied tells whether this process has not applied what the status is about, so that
// there is nothing to say of Applied; w.mu is held.
func (w *work) unapplied() bool {
	return w.seenOnly || w.suspended != nil && (w.concluded == nil || w.concluded.uid != w.suspended.uid)
}

// suspension brings the conditions of a work in line with whether it is suspended or
// compared, and with what is known of it; w.mu is held.
func (w *work) suspension(all []metav1.Condition, tallies map[string]*tally) []metav1.Condition {
	if w.unapplied() {
		meta.RemoveStatusCondition(&all, conditionApplied)
		if len(w.outcomes) == 0 {
			meta.RemoveStatusCondition(&all, conditionAvailable)
			meta.RemoveStatusCondition(&all, conditionHealthy)
		}
	}
	if w.comparing && w.refused == "" {
		meta.RemoveStatusCondition(&all, wire.ConditionDrifted)
		all = append(all, w.driftedCondition(tallies[wire.ConditionDrifted]))
	}
	if w.suspended != nil {
		meta.RemoveStatusCondition(&all, wire.ConditionSuspended) // a rule may have the name
		all = append(all, w.suspendedCondition())
	}
	return all
}

// suspendedCondition says that nothing is done, and for how much of the work that is so;
// w.mu is held.
func (w *work) suspendedCondition() metav1.Condition {
	d := w.suspended
	text := "Nothing is applied, repaired or deleted in the cluster while the annotation " + wire.AnnotationSuspend + " is true"
	if d.deleting {
		text += "; the work is deleted, and its objects go when the annotation has gone"
	}
	known := w.concluded != nil && w.concluded.uid == d.uid
	switch {
	case !known && d.applied == 0:
		text += "; nothing of the work was applied before"
	case known && !w.comparing && w.observed != 0 && w.observed != d.generation:
		text += fmt.Sprintf("; generation %d is the last that was applied", w.observed)
	}
	return metav1.Condition{
		Type: wire.ConditionSuspended, Status: metav1.ConditionTrue, Reason: wire.ReasonSuspended,
		Message: text, ObservedGeneration: d.generation,
	}
}
