// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/work/merge"
	"github.com/spokelet/spokelet/api/wire"
)

// maxDifferences bounds how many fields a condition names.
const maxDifferences = 8

// comparison is what an object is compared with. It is never changed.
type comparison struct {
	required *unstructured.Unstructured
	isSecret bool
	// err says why there is nothing to compare with.
	err error
}

// compare says in which fields an object is not what the manifest says. It names no values:
// they may be secret.
func (c *comparison) compare(obj *unstructured.Unstructured) metav1.Condition {
	if c.err != nil {
		return notComparedCondition(describe(c.err, c.isSecret))
	}
	found, err := merge.Compare(c.required, obj, maxDifferences)
	switch {
	case err != nil:
		return notComparedCondition(describe(err, c.isSecret))
	case found.Total == 0:
		return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionFalse, Reason: wire.ReasonNoDifference, Message: "The object is as the manifest says"}
	}
	text := "Fields that differ from the manifest: " + strings.Join(found.Paths, ", ")
	if more := found.Total - len(found.Paths); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonFieldsDiffer, Message: printable(text)}
}

func notComparedCondition(why string) metav1.Condition {
	return unknownCondition(wire.ConditionDrifted, wire.ReasonNotCompared, "Not compared: "+why)
}

// reportDrift reads the objects of a work that is to be compared and not applied, and
// follows them from then on. What the work applied before stays its own.
func (e *Engine) reportDrift(ctx context.Context, w *work, d *workSpec) error {
	if w.recordRefusal(d) {
		e.publishStatus(w)
		return nil
	}
	steps := plan(ctx, d.manifests, e.spoke.kinds.resolve, e.cfg.Namespaces)
	e.resolveOptions(w, d, steps)
	e.waitForKinds(w, steps)
	compared := map[objectID]struct{}{}
	for i := range steps {
		s := &steps[i]
		if s.err != nil {
			continue
		}
		compared[s.at.objectID] = struct{}{}
		if err := e.compareStep(ctx, w, d, s); err != nil {
			s.err = &FetchError{Err: err}
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
func (e *Engine) compareStep(ctx context.Context, w *work, d *workSpec, s *step) error {
	key := w.key.String()
	owned := false
	if w.anchor != nil {
		_, owned = w.anchor.tracked[s.at.objectID]
	}
	if !owned {
		e.inventory.addClaim(s.at, key, "")
	}
	s.reader = e.comparingReader(ctx, w, d, s)
	want := s.desiredState()
	// Other works go on to write the references that this one has, and nobody is its rival.
	want.isPassive, want.isOwner = true, want.isOwner && owned
	e.requeue(e.inventory.setDesired(s.at.objectID, key, want))
	if !e.inventory.needsRead(s.at.objectID) {
		return nil
	}
	obj, err := e.spoke.getObject(ctx, s.at)
	if err != nil {
		return err
	}
	if obj == nil {
		e.requeue(e.inventory.recordLookup(s.at.objectID, nil))
		return nil
	}
	e.requeue(e.inventory.recordLookup(s.at.objectID, newObservedObject(obj)))
	e.inventory.recordReadings(s.at.objectID, obj.GetResourceVersion(), readAll(e.inventory.readers(s.at.objectID), obj))
	return nil
}

// comparingReader returns the reader of a manifest that compares besides; always the same for
// one version of the work.
func (e *Engine) comparingReader(ctx context.Context, w *work, d *workSpec, s *step) *contentReader {
	if w.readersFor != d {
		w.readersFor, w.readers = d, map[objectID]*contentReader{}
	}
	if r := w.readers[s.at.objectID]; r != nil && r.comparison != nil {
		return r
	}
	r := &contentReader{generation: d.generation, comparison: s.comparison(ctx)}
	if s.reader != nil {
		r.feedback, r.rules = s.reader.feedback, s.reader.rules
	}
	w.readers[s.at.objectID] = r
	return r
}

// comparison is with what would be written to an object that exists.
func (s *step) comparison(ctx context.Context) *comparison {
	c := &comparison{isSecret: s.isSecret(), required: &unstructured.Unstructured{}}
	whole, err := decodeObject(s.raw)
	if err != nil {
		return &comparison{err: err, isSecret: c.isSecret}
	}
	pruned, err := s.options.ignoredFields.Prune(ctx, whole, true)
	if err != nil {
		return &comparison{err: err, isSecret: c.isSecret}
	}
	text, err := buildConfiguration(pruned.Object, s.at, nil)
	if err == nil {
		err = c.required.UnmarshalJSON(text)
	}
	c.err = err
	return c
}

// updateCompared ends the claims of a work on objects that are compared no more, and
// that it does not own.
func (e *Engine) updateCompared(w *work, compared map[objectID]struct{}) {
	for id := range w.comparedObjects {
		if _, still := compared[id]; !still {
			e.requeue(e.inventory.releaseClaim(id, w.key.String()))
		}
	}
	w.comparedObjects = nil
	for id := range compared {
		if w.anchor != nil {
			if _, owned := w.anchor.tracked[id]; owned {
				continue
			}
		}
		if w.comparedObjects == nil {
			w.comparedObjects = map[objectID]struct{}{}
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

// recordLookup takes what was read of an object, without a write; got is nil when it is not
// there.
func (t *inventory) recordLookup(id objectID, got *observedObject) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	if got != nil {
		o.updateLive(got)
	} else if o.live == nil {
		o.isKnown = true
	}
	t.detectDrift(o, &r)
	return r
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
		return notComparedCondition(o.failure), true
	case o.readError != "":
		return notComparedCondition(o.readError), true
	case o.object == nil:
		return notComparedCondition("Resource meta is incomplete"), true
	}
	live, known, failure := seen.get(*o.object)
	switch {
	case failure != nil:
		return notComparedCondition(describe(failure, false)), true
	case live == nil && known:
		return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonObjectMissing, Message: "The object does not exist"}, true
	case live == nil:
		return c, false
	}
	r := seen.readingOf(*o.object, work)
	if r == nil || r.reader.generation != observed || r.driftCondition.Type == "" {
		return c, false
	}
	return r.driftCondition, true
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
