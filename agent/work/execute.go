// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"
)

// reconcile brings the spoke to what is wanted of one work. The queue sees to it
// that no two run for the same work: apply and delete never overlap. It returns
// how long to wait before the next look, 0 for none.
func (e *Engine) reconcile(ctx context.Context, w *work) (time.Duration, error) {
	d := w.wanted()
	if d.writes() {
		e.followCompared(w, nil)
		w.endComparison()
	}
	switch {
	case d == nil:
		return e.evict(ctx, w)
	case d.suspended:
		return 0, e.suspend(ctx, w, d)
	}
	w.setSuspended(nil)
	switch {
	case d.deleting:
		return 0, e.finalize(ctx, w, d)
	case d.reportsDrift:
		return 0, e.compare(ctx, w, d)
	default:
		return e.apply(ctx, w, d)
	}
}

// apply makes the objects of a work what its manifests say.
func (e *Engine) apply(ctx context.Context, w *work, d *desired) (time.Duration, error) {
	if d.copied && (w.anchor == nil || w.anchor.deleting) {
		return 0, nil // from our own copy alone nothing is begun: the hub may have deleted it since
	}
	if w.isComplete() {
		e.publish(w)
		// Whatever changed is left as it is until the condition goes.
		return 0, e.recordComplete(ctx, w)
	}
	if w.refuse(d) {
		e.publish(w)
		return 0, nil
	}
	e.releaseAnchor(w, d)
	steps := plan(ctx, d.manifests, e.spoke.kinds.resolve, e.cfg.Namespaces)
	e.equip(w, d, steps)
	e.await(w, steps)
	complete, err := e.resume(ctx, w, d, steps)
	if err == nil && complete {
		err = e.recordComplete(ctx, w)
	}
	if complete || err != nil {
		e.publish(w)
		return 0, err
	}
	order := inOrder(steps)
	err = e.secure(ctx, w, order)
	if err != nil {
		for _, s := range order {
			s.err = err
		}
		w.conclude(d, steps, nil)
		e.publish(w)
		return 0, err
	}
	results, wait, err := e.take(ctx, w, d, order)
	if err != nil {
		return 0, err
	}
	unrecorded := e.record(ctx, w)
	w.conclude(d, steps, results)
	e.publish(w)
	if gone := removed(w.anchor.tracked, steps); len(gone) > 0 {
		if err := e.collect(ctx, w, gone); err != nil {
			return wait, err
		}
		w.recording = true // what was pruned is off the list at once
		unrecorded = e.record(ctx, w)
	}
	return wait, cmp.Or(unrecorded, failure(steps))
}

// take takes steps in order, as long as they are what is wanted.
func (e *Engine) take(ctx context.Context, w *work, d *desired, order []*step) (map[int]result, time.Duration, error) {
	e.review(w, d, order)
	results := map[int]result{}
	var wait time.Duration
	defer func() { w.denied.ended(refusedIn(order)) }()
	for _, s := range order {
		if ctx.Err() != nil || w.wanted() != d {
			return nil, 0, errors.Join(ctx.Err(), errSuperseded)
		}
		r, pause := e.applyStep(ctx, w, s)
		results[s.ordinal] = r
		wait = sooner(wait, pause)
	}
	if w.permits != nil {
		wait = sooner(wait, w.reviews.wait(time.Now()))
	}
	return results, wait, nil
}

// sooner is the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// recordComplete brings the anchor of a work up to date that is complete. Nothing
// is done about an anchor that is gone, for nothing is applied any more.
func (e *Engine) recordComplete(ctx context.Context, w *work) error {
	if w.anchor == nil || w.anchor.uid == "" || w.anchor.deleting {
		return nil
	}
	if err := e.cancelEviction(ctx, w); err != nil {
		return err
	}
	return w.lost(e.recordList(ctx, w))
}

// record brings the anchor up to date: before the hub is told, where the policy says
// so and there is no burst, and else when it is this run's turn.
func (e *Engine) record(ctx context.Context, w *work) error {
	if err := e.recordYields(ctx, w); err != nil {
		return w.lost(err)
	}
	return e.recordList(ctx, w)
}

// recordList brings the anchor's list up to date, or puts that off.
func (e *Engine) recordList(ctx context.Context, w *work) error {
	e.clearAdopted(w.anchor)
	if w.anchor.current(w.policy.Anchor.form) {
		return nil
	}
	// An attempt that follows a failed one puts nothing off: that would be a success.
	if !w.recording && w.failures == 0 && (!w.policy.RecordsFirst || e.backlog.delays()) {
		e.backlog.add(w.key.String())
		return nil
	}
	err := e.recordAnchor(ctx, w, w.anchor)
	if errors.Is(err, errAnchorLost) {
		w.shaken.Store(true)
	}
	return err
}

// failure joins what another attempt may mend.
func failure(steps []step) error {
	n := 0
	var first error
	for _, s := range steps {
		if s.err == nil || lasting(s.err) {
			continue
		}
		if n++; first == nil {
			first = s.err
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%d of %d manifests failed: %w", n, len(steps), first)
}

// secure makes sure that the anchor exists and lists every step before any of
// them is taken.
func (e *Engine) secure(ctx context.Context, w *work, order []*step) error {
	if w.anchor == nil {
		w.anchor = newAnchor()
	}
	a := w.anchor
	if err := e.inspectAnchor(ctx, w); err != nil {
		return err
	}
	if err := e.cancelEviction(ctx, w); err != nil {
		return err
	}
	var added []objectID
	for _, s := range order {
		if t, ok := a.tracked[s.at.objectID]; ok {
			t.ordinal = s.ordinal
			a.tracked[s.at.objectID] = t
			continue
		}
		added = append(added, s.at.objectID)
		a.tracked[s.at.objectID] = tracked{target: s.at, ordinal: s.ordinal}
	}
	if err := e.listAnchor(ctx, w, len(added) > 0); err != nil {
		for _, id := range added { // they are not listed, and the next attempt must know
			if !a.tracked[id].unsure { // else an anchor that was adopted lists it
				delete(a.tracked, id)
			}
		}
		w.shaken.Store(true)
		return err
	}
	for _, t := range a.tracked {
		e.table.claim(t.target, w.key.String(), a.uid)
	}
	for _, s := range order {
		e.table.intend(s.at.objectID, w.key.String(), s.intent())
	}
	return nil
}

func (e *Engine) listAnchor(ctx context.Context, w *work, missing bool) error {
	a := w.anchor
	if a.uid != "" {
		if !missing {
			return nil
		}
		return e.recordAnchor(ctx, w, a)
	}
	a.recorded, a.pending = nil, nil
	if err := e.createAnchor(ctx, w, a); err != nil {
		return err
	}
	for _, t := range a.tracked {
		if t.uid != "" {
			return e.recordAnchor(ctx, w, a) // the successor of a lost anchor
		}
	}
	return nil
}

// inspectAnchor looks at an anchor that somebody touched. One that is being
// deleted lets go of its objects before it goes itself: the garbage collector
// would take them along.
func (e *Engine) inspectAnchor(ctx context.Context, w *work) error {
	a := w.anchor
	if a.uid != "" && w.shaken.Swap(false) {
		u, err := e.spoke.anchors(w.policy).Get(ctx, w.anchorName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && u.GetUID() != a.uid:
			a.uid, a.deleting = "", false
		case err != nil:
			w.shaken.Store(true)
			return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
		default:
			a.deleting = u.GetDeletionTimestamp() != nil
		}
	}
	if !a.deleting {
		return nil
	}
	for id, t := range a.tracked {
		freed, err := e.removeReference(ctx, w, t.target)
		if err != nil {
			return err
		}
		if freed != "" {
			t.freed = freed
			a.tracked[id] = t
		}
	}
	if err := e.dropAnchor(ctx, w, a); err != nil {
		return err
	}
	a.uid, a.deleting = "", false
	return nil
}

// removeReference removes the reference to a work's anchor from an object that the work keeps:
// another anchor is to own it.
func (e *Engine) removeReference(ctx context.Context, w *work, at target) (freed types.UID, _ error) {
	e.table.replaceAnchor(at.objectID, w.key.String())
	unlock, err := e.table.lock(ctx, at.objectID)
	if err != nil {
		return "", err
	}
	defer unlock()
	return e.removeOwnerReference(ctx, at, w.anchor.uid)
}

// result is what became of one step that was taken, or had been before.
type result struct {
	generation int64
	// remark names what was not applied of it, empty for nothing.
	remark string
}

// applyStep applies one manifest unless its object is as it was left. Whoever the
// work acts for is asked for in either case.
func (e *Engine) applyStep(ctx context.Context, w *work, s *step) (result, time.Duration) {
	key := w.key.String()
	now := time.Now()
	due, wait := e.table.due(s.at.objectID, key, s.content, now)
	s.changed = e.table.isNew(s.at.objectID, key, s.content)
	writes := due != needNothing && wait == 0 && !w.finished(s.at.objectID)
	if w.permits.strays(s.at.objectID, due == needApply && !s.changed) && !e.executors.Follows() {
		w.reviews.noteStrayed(now)
	}
	again, err := e.permitted(ctx, w, s, writes)
	if s.err = err; err != nil {
		return result{}, again
	}
	if !writes {
		// What cannot be read now is read at its next event.
		_ = e.reread(ctx, s)
		_, left := e.table.contention(s.at.objectID, now)
		return w.resultOf(s.at.objectID), sooner(sooner(wait, again), left)
	}
	r := e.writeStep(ctx, w, s, due, now)
	_, left := e.table.contention(s.at.objectID, now)
	return r, left
}

// writeStep writes one manifest to its object, or the references alone that the object
// lacks.
func (e *Engine) writeStep(ctx context.Context, w *work, s *step, due need, now time.Time) result {
	key := w.key.String()
	unlock, err := e.table.lock(ctx, s.at.objectID)
	if s.err = err; err != nil {
		return result{}
	}
	defer unlock()
	owners := e.table.begin(s.at.objectID, key, now)
	e.noteContention(ctx, s, now)
	if due == needReference {
		var got *sighting
		got, s.err = e.own(ctx, s, owners)
		e.table.owned(s.at.objectID, got)
		return w.resultOf(s.at.objectID)
	}
	got, err := e.write(ctx, w, s, owners)
	e.metrics.applied(time.Since(now), err)
	if s.how.strategy == workv1.UpdateStrategyTypeReadOnly && err == nil {
		e.table.found(s.at.objectID, key, s.content, got.seen)
	} else {
		e.table.finish(s.at.objectID, key, s.content, got.seen, s.how.guard())
	}
	return e.answered(ctx, w, s, got, err)
}

// answered takes note of the answer to one write.
func (e *Engine) answered(ctx context.Context, w *work, s *step, got written, err error) result {
	t := w.anchor.tracked[s.at.objectID]
	if err != nil {
		s.err = err
		t.unsure = t.unsure || !refused(err)
		w.anchor.tracked[s.at.objectID] = t
		return result{}
	}
	if got.obj != nil {
		e.table.note(s.at.objectID, got.obj.GetResourceVersion(), readAll(e.table.readers(s.at.objectID), got.obj))
	} else {
		_ = e.reread(ctx, s)
	}
	if got.seen == nil {
		t.uid = ""
		w.anchor.tracked[s.at.objectID] = t
		return result{}
	}
	w.anchor.tracked[s.at.objectID] = e.settled(w, t, got.seen.uid, got.from)
	r := result{generation: got.seen.generation, remark: remark(s.leftOut(), got.unknown)}
	w.keep(s.at.objectID, r)
	return r
}

// remark says what was left out of a manifest, and what the API server did not take.
func remark(leftOut, unknown []string) string {
	var parts []string
	if len(leftOut) > 0 {
		parts = append(parts, "not applied, for they are of another cluster or of Kubernetes itself: "+strings.Join(leftOut, ", "))
	}
	if len(unknown) > 0 {
		parts = append(parts, "not taken by the API server: "+strings.Join(unknown, ", "))
	}
	return strings.Join(parts, "; ")
}

// references turns owners into ownerReferences: those of every work that claims
// the object, for an apply withdraws what it does not repeat.
func (e *Engine) references(owners []owner) []metav1.OwnerReference {
	out := make([]metav1.OwnerReference, 0, len(owners))
	for _, o := range owners {
		if w := e.lookup(o.work); w != nil && o.anchor != "" {
			out = append(out, w.policy.Anchor.reference(w.anchorName(), o))
		}
	}
	return out
}
