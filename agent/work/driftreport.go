// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// reportDrift reads the objects of a work that is to be compared and not applied, and
// follows them from then on. What the work applied before stays its own.
func (e *Engine) reportDrift(ctx context.Context, w *work, d *plan.Spec) error {
	if w.recordRefusal(d) {
		e.publishStatus(w)
		return nil
	}
	steps := plan.Build(ctx, d.Manifests, e.spoke.kinds.Resolve, e.cfg.Namespaces)
	e.resolveOptions(w, d, steps)
	e.waitForKinds(w, steps)
	compared := map[manifest.ObjectID]struct{}{}
	for i := range steps {
		s := &steps[i]
		if s.Error != nil {
			continue
		}
		compared[s.Target.ObjectID] = struct{}{}
		if err := e.compareStep(ctx, w, d, s); err != nil {
			s.Error = &manifest.FetchError{Err: err}
		}
	}
	e.updateCompared(w, compared)
	out := w.buildOutcomes(steps, nil)
	for i := range out {
		out[i].isCompared = true
	}
	w.mu.Lock()
	w.setOutcomes(d, out)
	w.isObservedOnly, w.reportsDrift = true, true
	w.mu.Unlock()
	e.publishStatus(w)
	return errors.Join(joinErrors(steps), e.recordComplete(ctx, w))
}

// compareStep has the object of a manifest watched with its content, and reads it where
// no event may tell of it soon.
func (e *Engine) compareStep(ctx context.Context, w *work, d *plan.Spec, s *plan.Step) error {
	key := w.key.String()
	owned := false
	if w.anchor != nil {
		_, owned = w.anchor.Objects[s.Target.ObjectID]
	}
	if !owned {
		e.inventory.AddClaim(s.Target, key, "")
	}
	s.Reader = e.comparingReader(ctx, w, d, s)
	want := s.DesiredState()
	// Other works go on to write the references that this one has, and nobody is its rival.
	want.IsPassive, want.IsOwner = true, want.IsOwner && owned
	e.requeue(e.inventory.SetDesired(s.Target.ObjectID, key, want))
	if !e.inventory.NeedsRead(s.Target.ObjectID) {
		return nil
	}
	obj, err := e.spoke.getObject(ctx, s.Target)
	if err != nil {
		return err
	}
	if obj == nil {
		e.requeue(e.inventory.RecordLookup(s.Target.ObjectID, nil))
		return nil
	}
	e.requeue(e.inventory.RecordLookup(s.Target.ObjectID, inventory.NewObservedObject(obj)))
	e.inventory.RecordReadings(s.Target.ObjectID, obj.GetResourceVersion(), inventory.ReadAll(e.inventory.Readers(s.Target.ObjectID), obj))
	return nil
}

// comparingReader returns the reader of a manifest that compares besides; always the same for
// one version of the work.
func (e *Engine) comparingReader(ctx context.Context, w *work, d *plan.Spec, s *plan.Step) *inventory.Reader {
	if w.readersFor != d {
		w.readersFor, w.readers = d, map[manifest.ObjectID]*inventory.Reader{}
	}
	if r := w.readers[s.Target.ObjectID]; r != nil && r.Comparison != nil {
		return r
	}
	r := &inventory.Reader{Generation: d.Generation, Comparison: s.Comparison(ctx)}
	if s.Reader != nil {
		r.Feedback, r.Rules = s.Reader.Feedback, s.Reader.Rules
	}
	w.readers[s.Target.ObjectID] = r
	return r
}

// updateCompared ends the claims of a work on objects that are compared no more, and
// that it does not own.
func (e *Engine) updateCompared(w *work, compared map[manifest.ObjectID]struct{}) {
	for id := range w.comparedObjects {
		if _, still := compared[id]; !still {
			e.requeue(e.inventory.ReleaseClaim(id, w.key.String()))
		}
	}
	w.comparedObjects = nil
	for id := range compared {
		if w.anchor != nil {
			if _, owned := w.anchor.Objects[id]; owned {
				continue
			}
		}
		if w.comparedObjects == nil {
			w.comparedObjects = map[manifest.ObjectID]struct{}{}
		}
		w.comparedObjects[id] = struct{}{}
	}
}

// endComparison has no status say any more what differs.
func (w *work) endComparison() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reportsDrift = false
	for i := range w.outcomes {
		w.outcomes[i].isCompared = false
	}
}

// setDriftCondition brings the condition Drifted of a manifest up to date; the work is locked.
func (w *work) setDriftCondition(o *outcome, seen objectReader, now metav1.Time) {
	if !o.isCompared {
		if c := meta.FindStatusCondition(o.conditions, wire.ConditionDrifted); c != nil && wire.IsDriftReport(*c) {
			meta.RemoveStatusCondition(&o.conditions, wire.ConditionDrifted)
		}
		return
	}
	if c, ok := o.driftCondition(w.key.String(), w.observedGeneration, seen); ok {
		c.ObservedGeneration = w.observedGeneration
		setCondition(&o.conditions, c, now)
	}
}

// driftCondition is the condition of a manifest that is compared; ok is false while the object
// has yet to be looked at, and what was said before stands.
func (o *outcome) driftCondition(work string, observed int64, seen objectReader) (c metav1.Condition, ok bool) {
	switch {
	case o.failure != "":
		return inventory.NotComparedCondition(o.failure), true
	case o.readError != "":
		return inventory.NotComparedCondition(o.readError), true
	case o.object == nil:
		return inventory.NotComparedCondition("Resource meta is incomplete"), true
	}
	live, known, failure := seen.Get(*o.object)
	switch {
	case failure != nil:
		return inventory.NotComparedCondition(manifest.DescribeError(failure, false)), true
	case live == nil && known:
		return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonObjectMissing, Message: "The object does not exist"}, true
	case live == nil:
		return c, false
	}
	r := seen.ReadingOf(*o.object, work)
	if r == nil || r.Reader.Generation != observed || r.DriftCondition.Type == "" {
		return c, false
	}
	return r.DriftCondition, true
}

// driftCondition says of a work how many of its manifests differ; w.mu is held.
func (w *work) driftCondition(manifests *conditionCounts) metav1.Condition {
	c := metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionFalse, Reason: wire.ReasonNoDifference, Message: "All objects are as the manifests say"}
	if manifests != nil {
		differ := manifests.reasons[wire.ReasonFieldsDiffer] + manifests.reasons[wire.ReasonObjectMissing]
		switch {
		case differ > 0:
			c.Status, c.Reason = metav1.ConditionTrue, wire.ReasonManifestsDiffer
			c.Message = fmt.Sprintf("%d of %d manifests differ from what is in the cluster", differ, len(w.outcomes))
		case manifests.unknownCount > 0:
			c.Status, c.Reason = metav1.ConditionUnknown, wire.ReasonNotCompared
			c.Message = fmt.Sprintf("%d of %d manifests could not be compared", manifests.unknownCount, len(w.outcomes))
		}
	}
	c.Message += "; nothing is written in the cluster while the annotation " + wire.AnnotationDrift + " is report"
	return c
}
