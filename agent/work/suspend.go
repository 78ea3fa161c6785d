// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// suspend leaves everything of a work as it is, whatever is wanted of it, and goes on
// telling of what was applied. The one thing that may be written is the record of what
// was applied before: without it a restart would not know.
func (e *Engine) suspend(ctx context.Context, w *work, d *plan.Spec) error {
	known := w.hasOutcomesOf(d.UID)
	var unread error
	if !known || w.restoreAgain {
		unread = e.restoreOutcomes(ctx, w, d)
		w.restoreAgain = unread != nil
	}
	w.setSuspended(d)
	e.publishStatus(w)
	if known && !w.isOnlyObserved() && w.anchor != nil && !w.anchor.IsDeleting {
		// Who wrote a shared object last is known to whom has seen the writes.
		if err := w.ignoreLostAnchor(e.recordSuperseded(ctx, w)); err != nil {
			return errors.Join(unread, err)
		}
	}
	return errors.Join(unread, e.recordComplete(ctx, w))
}

// restoreOutcomes concludes what can be told of a suspended work that this process has not
// applied: of the objects that the anchor lists, as far as the manifests name them.
// What the hub was told of Applied stays there; it is not known here.
func (e *Engine) restoreOutcomes(ctx context.Context, w *work, d *plan.Spec) error {
	if w.anchor == nil || w.anchor.IsDeleting || d.Refusal != nil {
		return nil
	}
	// Rules report for the generation that was applied, as the objects are of that.
	was := *d
	was.Generation, was.ReportsDrift = d.AppliedGeneration, false
	steps := plan.Build(ctx, d.Manifests, e.spoke.kinds.Resolve, e.cfg.Namespaces)
	e.resolveOptions(w, &was, steps)
	e.waitForKinds(w, steps)
	for i := range steps {
		s := &steps[i]
		if _, listed := w.anchor.Objects[s.Target.ObjectID]; !listed || s.Error != nil {
			continue
		}
		e.requeue(e.inventory.SetDesired(s.Target.ObjectID, w.key.String(), s.DesiredState()))
		if err := e.readForRules(ctx, s); err != nil {
			s.Error = &manifest.FetchError{Err: err}
		}
	}
	out := w.buildOutcomes(steps, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setOutcomes(&was, out)
	w.isObservedOnly = true
	return joinErrors(steps)
}

// hasOutcomesOf tells whether something is concluded of the work of a UID.
func (w *work) hasOutcomesOf(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outcomesOf != nil && w.outcomesOf.UID == uid
}

func (w *work) isOnlyObserved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isObservedOnly
}

// setSuspended has the status say that the work is suspended, or with nil that it is not.
// A deletion that was under way is told of no more: it is not.
func (w *work) setSuspended(d *plan.Spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.suspended = d; d != nil {
		w.deletion = nil
	}
}

// statusSubject is the work and the generation that a status is about. Of a suspended work it is
// what is wanted now, lest the hub takes the status for an old one; its conditions say
// which generation was applied. w.mu is held.
func (w *work) statusSubject() (uid string, generation int64) {
	if w.suspended != nil {
		return w.suspended.UID, w.suspended.Generation
	}
	return w.outcomesOf.UID, w.observedGeneration
}

// hasNoApplied tells whether this process has not applied what the status is about, so that
// there is nothing to say of Applied; w.mu is held.
func (w *work) hasNoApplied() bool {
	return w.isObservedOnly || w.suspended != nil && (w.outcomesOf == nil || w.outcomesOf.UID != w.suspended.UID)
}

// adjustConditions brings the conditions of a work in line with whether it is suspended or
// compared, and with what is known of it; w.mu is held.
func (w *work) adjustConditions(all []metav1.Condition, tallies map[string]*conditionCounts) []metav1.Condition {
	if w.hasNoApplied() {
		meta.RemoveStatusCondition(&all, conditionApplied)
		if len(w.outcomes) == 0 {
			meta.RemoveStatusCondition(&all, conditionAvailable)
			meta.RemoveStatusCondition(&all, conditionHealthy)
		}
	}
	if w.reportsDrift && w.refusal == "" {
		meta.RemoveStatusCondition(&all, wire.ConditionDrifted)
		all = append(all, w.driftCondition(tallies[wire.ConditionDrifted]))
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
	if d.IsDeleting {
		text += "; the work is deleted, and its objects go when the annotation has gone"
	}
	known := w.outcomesOf != nil && w.outcomesOf.UID == d.UID
	switch {
	case !known && d.AppliedGeneration == 0:
		text += "; nothing of the work was applied before"
	case known && !w.reportsDrift && w.observedGeneration != 0 && w.observedGeneration != d.Generation:
		text += fmt.Sprintf("; generation %d is the last that was applied", w.observedGeneration)
	}
	return metav1.Condition{
		Type: wire.ConditionSuspended, Status: metav1.ConditionTrue, Reason: wire.ReasonSuspended,
		Message: text, ObservedGeneration: d.Generation,
	}
}
