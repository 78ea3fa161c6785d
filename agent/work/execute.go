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

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
)

// reconcile brings the spoke to what is wanted of one work. The queue sees to it
// that no two run for the same work: apply and delete never overlap. It returns
// how long to wait before the next look, 0 for none.
func (e *Engine) reconcile(ctx context.Context, w *work) (time.Duration, error) {
	d := w.currentSpec()
	if d.MayWrite() {
		e.updateCompared(w, nil)
		w.endComparison()
	}
	switch {
	case d == nil:
		return e.evict(ctx, w)
	case d.IsSuspended:
		return 0, e.suspend(ctx, w, d)
	}
	w.setSuspended(nil)
	switch {
	case d.IsDeleting:
		return 0, e.finalize(ctx, w, d)
	case d.ReportsDrift:
		return 0, e.reportDrift(ctx, w, d)
	default:
		return e.apply(ctx, w, d)
	}
}

// apply makes the objects of a work what its manifests say.
func (e *Engine) apply(ctx context.Context, w *work, d *plan.Spec) (time.Duration, error) {
	if d.IsCached && (w.anchor == nil || w.anchor.IsDeleting) {
		return 0, nil // from our own copy alone nothing is begun: the hub may have deleted it since
	}
	if w.isComplete() {
		e.publishStatus(w)
		// Whatever changed is left as it is until the condition goes.
		return 0, e.recordComplete(ctx, w)
	}
	if w.recordRefusal(d) {
		e.publishStatus(w)
		return 0, nil
	}
	e.releaseAnchor(w, d)
	steps := plan.Build(ctx, d.Manifests, e.spoke.kinds.Resolve, e.cfg.Namespaces)
	e.resolveOptions(w, d, steps)
	e.waitForKinds(w, steps)
	complete, err := e.restoreCompletion(ctx, w, d, steps)
	if err == nil && complete {
		err = e.recordComplete(ctx, w)
	}
	if complete || err != nil {
		e.publishStatus(w)
		return 0, err
	}
	order := plan.ApplicableSteps(steps)
	err = e.ensureAnchor(ctx, w, order)
	if err != nil {
		for _, s := range order {
			s.Error = err
		}
		w.recordOutcomes(d, steps, nil)
		e.publishStatus(w)
		return 0, err
	}
	results, wait, err := e.applyAll(ctx, w, d, order)
	if err != nil {
		return 0, err
	}
	unrecorded := e.recordAnchorState(ctx, w)
	w.recordOutcomes(d, steps, results)
	e.publishStatus(w)
	if gone := plan.RemovedObjects(w.anchor.Objects, steps); len(gone) > 0 {
		if err := e.pruneObjects(ctx, w, gone); err != nil {
			return wait, err
		}
		w.recordNow = true // what was pruned is off the list at once
		unrecorded = e.recordAnchorState(ctx, w)
	}
	return wait, cmp.Or(unrecorded, joinErrors(steps))
}

// applyAll takes steps in order, as long as they are what is wanted.
func (e *Engine) applyAll(ctx context.Context, w *work, d *plan.Spec, order []*plan.Step) (map[int]result, time.Duration, error) {
	e.beginReview(w, d, order)
	results := map[int]result{}
	var wait time.Duration
	defer func() { w.denials.recordRun(hasDenial(order)) }()
	for _, s := range order {
		if ctx.Err() != nil || w.currentSpec() != d {
			return nil, 0, errors.Join(ctx.Err(), errSuperseded)
		}
		r, pause := e.applyStep(ctx, w, s)
		results[s.Ordinal] = r
		wait = shorterWait(wait, pause)
	}
	if w.allowed != nil {
		wait = shorterWait(wait, w.reviews.delay(time.Now()))
	}
	return results, wait, nil
}

// shorterWait is the shorter of two waits, of which 0 is none.
func shorterWait(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// recordComplete brings the anchor of a work up to date that is complete. Nothing
// is done about an anchor that is gone, for nothing is applied any more.
func (e *Engine) recordComplete(ctx context.Context, w *work) error {
	if w.anchor == nil || w.anchor.UID == "" || w.anchor.IsDeleting {
		return nil
	}
	if err := e.cancelEviction(ctx, w); err != nil {
		return err
	}
	return w.ignoreLostAnchor(e.recordAnchorList(ctx, w))
}

// recordAnchorState brings the anchor up to date: before the hub is told, where the policy says
// so and there is no burst, and else when it is this run's turn.
func (e *Engine) recordAnchorState(ctx context.Context, w *work) error {
	if err := e.recordSuperseded(ctx, w); err != nil {
		return w.ignoreLostAnchor(err)
	}
	return e.recordAnchorList(ctx, w)
}

// recordAnchorList brings the anchor's list up to date, or puts that off.
func (e *Engine) recordAnchorList(ctx context.Context, w *work) error {
	e.clearAdopted(w.anchor)
	if w.anchor.IsRecorded(w.policy.Anchor) {
		return nil
	}
	// An attempt that follows a failed one puts nothing off: that would be a success.
	if !w.recordNow && w.failures == 0 && (!w.policy.RecordsFirst || e.records.ShouldDelay()) {
		e.records.Add(w.key.String())
		return nil
	}
	err := e.store(w.policy).Update(ctx, w.recordKey(), w.anchor)
	if errors.Is(err, record.ErrLost) {
		w.anchorChanged.Store(true)
	}
	return err
}

// joinErrors joins what another attempt may mend.
func joinErrors(steps []plan.Step) error {
	n := 0
	var first error
	for _, s := range steps {
		if s.Error == nil || plan.IsPermanent(s.Error) {
			continue
		}
		if n++; first == nil {
			first = s.Error
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%d of %d manifests failed: %w", n, len(steps), first)
}

// ensureAnchor makes sure that the anchor exists and lists every step before any of
// them is taken.
func (e *Engine) ensureAnchor(ctx context.Context, w *work, order []*plan.Step) error {
	if w.anchor == nil {
		w.anchor = record.NewAnchor()
	}
	a := w.anchor
	if err := e.refreshAnchor(ctx, w); err != nil {
		return err
	}
	if err := e.cancelEviction(ctx, w); err != nil {
		return err
	}
	var added []manifest.ObjectID
	for _, s := range order {
		if t, ok := a.Objects[s.Target.ObjectID]; ok {
			t.Ordinal = s.Ordinal
			a.Objects[s.Target.ObjectID] = t
			continue
		}
		added = append(added, s.Target.ObjectID)
		a.Objects[s.Target.ObjectID] = record.Object{Target: s.Target, Ordinal: s.Ordinal}
	}
	if err := e.writeAnchorList(ctx, w, len(added) > 0); err != nil {
		for _, id := range added { // they are not listed, and the next attempt must know
			if !a.Objects[id].IsUncertain { // else an anchor that was adopted lists it
				delete(a.Objects, id)
			}
		}
		w.anchorChanged.Store(true)
		return err
	}
	for _, t := range a.Objects {
		e.inventory.AddClaim(t.Target, w.key.String(), a.UID)
	}
	for _, s := range order {
		e.requeue(e.inventory.SetDesired(s.Target.ObjectID, w.key.String(), s.DesiredState()))
	}
	return nil
}

func (e *Engine) writeAnchorList(ctx context.Context, w *work, missing bool) error {
	a := w.anchor
	if a.UID != "" {
		if !missing {
			return nil
		}
		return e.store(w.policy).Update(ctx, w.recordKey(), a)
	}
	a.Recorded, a.Pending = nil, nil
	if err := e.store(w.policy).Create(ctx, w.recordKey(), a); err != nil {
		return err
	}
	for _, t := range a.Objects {
		if t.UID != "" {
			return e.store(w.policy).Update(ctx, w.recordKey(), a) // the successor of a lost anchor
		}
	}
	return nil
}

// refreshAnchor looks at an anchor that somebody touched. One that is being
// deleted lets go of its objects before it goes itself: the garbage collector
// would take them along.
func (e *Engine) refreshAnchor(ctx context.Context, w *work) error {
	a := w.anchor
	if a.UID != "" && w.anchorChanged.Swap(false) {
		u, err := e.store(w.policy).Client.Get(ctx, w.anchorName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && u.GetUID() != a.UID:
			a.UID, a.IsDeleting = "", false
		case err != nil:
			w.anchorChanged.Store(true)
			return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
		default:
			a.IsDeleting = u.GetDeletionTimestamp() != nil
		}
	}
	if !a.IsDeleting {
		return nil
	}
	for id, t := range a.Objects {
		freed, err := e.detachObject(ctx, w, t.Target)
		if err != nil {
			return err
		}
		if freed != "" {
			t.DetachedUID = freed
			a.Objects[id] = t
		}
	}
	if err := e.store(w.policy).RemoveFinalizer(ctx, w.recordKey(), a); err != nil {
		return err
	}
	a.UID, a.IsDeleting = "", false
	return nil
}

// detachObject removes the reference to a work's anchor from an object that the work keeps:
// another anchor is to own it.
func (e *Engine) detachObject(ctx context.Context, w *work, at manifest.Target) (freed types.UID, _ error) {
	e.inventory.ClearAnchor(at.ObjectID, w.key.String())
	unlock, err := e.inventory.Lock(ctx, at.ObjectID)
	if err != nil {
		return "", err
	}
	defer unlock()
	return e.removeOwnerReference(ctx, at, w.anchor.UID)
}

// result is what became of one step that was taken, or had been before.
type result struct {
	generation int64
	// warning names what was not applied of it, empty for nothing.
	warning string
}

// applyStep applies one manifest unless its object is as it was left. Whoever the
// work acts for is asked for in either case.
func (e *Engine) applyStep(ctx context.Context, w *work, s *plan.Step) (result, time.Duration) {
	key := w.key.String()
	now := time.Now()
	due, wait := e.inventory.NextAction(s.Target.ObjectID, key, s.ContentHash, now)
	s.IsNewContent = e.inventory.IsNewContent(s.Target.ObjectID, key, s.ContentHash)
	writes := due != inventory.ActionNone && wait == 0 && !w.isManifestComplete(s.Target.ObjectID)
	if w.allowed.recordDrift(s.Target.ObjectID, due == inventory.ActionApply && !s.IsNewContent) && !e.executors.IsWatching() {
		w.reviews.recordDrift(now)
	}
	again, err := e.checkAccess(ctx, w, s, writes)
	if s.Error = err; err != nil {
		return result{}, again
	}
	if !writes {
		// What cannot be read now is read at its next event.
		_ = e.readForRules(ctx, s)
		_, left := e.inventory.Contention(s.Target.ObjectID, now)
		return w.lastResult(s.Target.ObjectID), shorterWait(shorterWait(wait, again), left)
	}
	r := e.writeStep(ctx, w, s, due, now)
	_, left := e.inventory.Contention(s.Target.ObjectID, now)
	return r, left
}

// writeStep writes one manifest to its object, or the references alone that the object
// lacks.
func (e *Engine) writeStep(ctx context.Context, w *work, s *plan.Step, due inventory.Action, now time.Time) result {
	key := w.key.String()
	unlock, err := e.inventory.Lock(ctx, s.Target.ObjectID)
	if s.Error = err; err != nil {
		return result{}
	}
	defer unlock()
	owners := e.inventory.BeginWrite(s.Target.ObjectID, key, now)
	e.noteContention(ctx, s, now)
	if due == inventory.ActionAddOwner {
		var got *inventory.ObservedObject
		got, s.Error = e.addMissingOwners(ctx, s, owners)
		e.requeue(e.inventory.RecordOwnerWrite(s.Target.ObjectID, got))
		return w.lastResult(s.Target.ObjectID)
	}
	got, err := e.writeObject(ctx, w, s, owners)
	e.metrics.observeApply(time.Since(now), err)
	if s.Options.Strategy == workv1.UpdateStrategyTypeReadOnly && err == nil {
		e.requeue(e.inventory.RecordRead(s.Target.ObjectID, key, s.ContentHash, got.observed))
	} else {
		e.requeue(e.inventory.RecordApply(s.Target.ObjectID, key, s.ContentHash, got.observed, s.Options.DriftPolicy()))
	}
	return e.recordAnswer(ctx, w, s, got, err)
}

// recordAnswer takes note of the answer to one write.
func (e *Engine) recordAnswer(ctx context.Context, w *work, s *plan.Step, got writeResult, err error) result {
	t := w.anchor.Objects[s.Target.ObjectID]
	if err != nil {
		s.Error = err
		t.IsUncertain = t.IsUncertain || !record.IsRejected(err)
		w.anchor.Objects[s.Target.ObjectID] = t
		return result{}
	}
	if got.obj != nil {
		e.inventory.RecordReadings(s.Target.ObjectID, got.obj.GetResourceVersion(), inventory.ReadAll(e.inventory.Readers(s.Target.ObjectID), got.obj))
	} else {
		_ = e.readForRules(ctx, s)
	}
	if got.observed == nil {
		t.UID = ""
		w.anchor.Objects[s.Target.ObjectID] = t
		return result{}
	}
	w.anchor.Objects[s.Target.ObjectID] = e.updateTracked(w, t, got.observed.UID, got.origin)
	r := result{generation: got.observed.Generation, warning: warningText(s.OmittedFields(), got.unknownFields)}
	w.setResult(s.Target.ObjectID, r)
	return r
}

// warningText says what was left out of a manifest, and what the API server did not take.
func warningText(leftOut, unknown []string) string {
	var parts []string
	if len(leftOut) > 0 {
		parts = append(parts, "not applied, for they are of another cluster or of Kubernetes itself: "+strings.Join(leftOut, ", "))
	}
	if len(unknown) > 0 {
		parts = append(parts, "not taken by the API server: "+strings.Join(unknown, ", "))
	}
	return strings.Join(parts, "; ")
}

// ownerReferences turns owners into ownerReferences: those of every work that claims
// the object, for an apply withdraws what it does not repeat.
func (e *Engine) ownerReferences(owners []inventory.Owner) []metav1.OwnerReference {
	out := make([]metav1.OwnerReference, 0, len(owners))
	for _, o := range owners {
		if w := e.lookup(o.Work); w != nil && o.Anchor != "" {
			out = append(out, w.policy.Anchor.Reference(w.anchorName(), o))
		}
	}
	return out
}

var errSuperseded = errors.New("work changed while it was being applied")
