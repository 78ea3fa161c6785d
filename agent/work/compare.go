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
	secret   bool
	// err says why there is nothing to compare with.
	err error
}

// of says in which fields an object is not what the manifest says. It names no values:
// they may be secret.
func (c *comparison) of(obj *unstructured.Unstructured) metav1.Condition {
	if c.err != nil {
		return notCompared(describe(c.err, c.secret))
	}
	found, err := merge.Compare(c.required, obj, maxDifferences)
	switch {
	case err != nil:
		return notCompared(describe(err, c.secret))
	case found.Total == 0:
		return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionFalse, Reason: wire.ReasonNoDifference, Message: "The object is as the manifest says"}
	}
	text := "Fields that differ from the manifest: " + strings.Join(found.Paths, ", ")
	if more := found.Total - len(found.Paths); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonFieldsDiffer, Message: printable(text)}
}

func notCompared(why string) metav1.Condition {
	return unknown(wire.ConditionDrifted, wire.ReasonNotCompared, "Not compared: "+why)
}

// compare reads the objects of a work that is to be compared and not applied, and
// follows them from then on. What the work applied before stays its own.
func (e *Engine) compare(ctx context.Context, w *work, d *desired) error {
	if w.refuse(d) {
		e.publish(w)
		return nil
	}
	steps := plan(ctx, d.manifests, e.spoke.kinds.resolve, e.cfg.Namespaces)
	e.equip(w, d, steps)
	e.await(w, steps)
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
	e.followCompared(w, compared)
	out := w.outcomesOf(steps, nil)
	for i := range out {
		out[i].compared = true
	}
	w.mu.Lock()
	w.hold(d, out)
	w.seenOnly, w.comparing = true, true
	w.mu.Unlock()
	e.publish(w)
	return errors.Join(failure(steps), e.recordComplete(ctx, w))
}

// compareStep has the object of a manifest watched with its content, and reads it where
// no event may tell of it soon.
func (e *Engine) compareStep(ctx context.Context, w *work, d *desired, s *step) error {
	key := w.key.String()
	owned := false
	if w.anchor != nil {
		_, owned = w.anchor.tracked[s.at.objectID]
	}
	if !owned {
		e.table.claim(s.at, key, "")
	}
	s.read = e.comparing(ctx, w, d, s)
	want := s.intent()
	// Other works go on to write the references that this one has, and nobody is its rival.
	want.passive, want.owns = true, want.owns && owned
	e.table.intend(s.at.objectID, key, want)
	if !e.table.unread(s.at.objectID) {
		return nil
	}
	obj, err := e.spoke.fetch(ctx, s.at)
	if err != nil {
		return err
	}
	if obj == nil {
		e.table.looked(s.at.objectID, nil)
		return nil
	}
	e.table.looked(s.at.objectID, sight(obj))
	e.table.note(s.at.objectID, obj.GetResourceVersion(), readAll(e.table.readers(s.at.objectID), obj))
	return nil
}

// comparing returns the reader of a manifest that compares besides; always the same for
// one version of the work.
func (e *Engine) comparing(ctx context.Context, w *work, d *desired, s *step) *reader {
	if w.readersOf != d {
		w.readersOf, w.readers = d, map[objectID]*reader{}
	}
	if r := w.readers[s.at.objectID]; r != nil && r.compare != nil {
		return r
	}
	r := &reader{generation: d.generation, compare: s.comparison(ctx)}
	if s.read != nil {
		r.feedback, r.rules = s.read.feedback, s.read.rules
	}
	w.readers[s.at.objectID] = r
	return r
}

// comparison is with what would be written to an object that exists.
func (s *step) comparison(ctx context.Context) *comparison {
	c := &comparison{secret: s.isSecret(), required: &unstructured.Unstructured{}}
	whole, err := decodeObject(s.raw)
	if err != nil {
		return &comparison{err: err, secret: c.secret}
	}
	pruned, err := s.how.ignored.Prune(ctx, whole, true)
	if err != nil {
		return &comparison{err: err, secret: c.secret}
	}
	text, err := configure(pruned.Object, s.at, nil)
	if err == nil {
		err = c.required.UnmarshalJSON(text)
	}
	c.err = err
	return c
}

// followCompared ends the claims of a work on objects that are compared no more, and
// that it does not own.
func (e *Engine) followCompared(w *work, compared map[objectID]struct{}) {
	for id := range w.compared {
		if _, still := compared[id]; !still {
			e.table.release(id, w.key.String())
		}
	}
	w.compared = nil
	for id := range compared {
		if w.anchor != nil {
			if _, owned := w.anchor.tracked[id]; owned {
				continue
			}
		}
		if w.compared == nil {
			w.compared = map[objectID]struct{}{}
		}
		w.compared[id] = struct{}{}
	}
}

// endComparison has no status say any more what differs.
func (w *work) endComparison() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.comparing = false
	for i := range w.outcomes {
		w.outcomes[i].compared = false
	}
}

// looked takes what was read of an object, without a write; got is nil when it is not
// there.
func (t *table) looked(id objectID, got *sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	if got != nil {
		o.take(got)
	} else if o.live == nil {
		o.known = true
	}
	t.judge(o)
}

// drift brings the condition Drifted of a manifest up to date; the work is locked.
func (w *work) drift(o *outcome, seen objectIndex, now metav1.Time) {
	if !o.compared {
		if c := meta.FindStatusCondition(o.conditions, wire.ConditionDrifted); c != nil && wire.IsDriftReport(*c) {
			meta.RemoveStatusCondition(&o.conditions, wire.ConditionDrifted)
		}
		return
	}
	if c, ok := o.drifted(w.key.String(), w.observed, seen); ok {
		c.ObservedGeneration = w.observed
		set(&o.conditions, c, now)
	}
}

// drifted is the condition of a manifest that is compared; ok is false while the object
// has yet to be looked at, and what was said before stands.
func (o *outcome) drifted(work string, observed int64, seen objectIndex) (c metav1.Condition, ok bool) {
	switch {
	case o.failure != "":
		return notCompared(o.failure), true
	case o.unfetched != "":
		return notCompared(o.unfetched), true
	case o.at == nil:
		return notCompared("Resource meta is incomplete"), true
	}
	live, known, failure := seen.look(*o.at)
	switch {
	case failure != nil:
		return notCompared(describe(failure, false)), true
	case live == nil && known:
		return metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonObjectMissing, Message: "The object does not exist"}, true
	case live == nil:
		return c, false
	}
	r := seen.readingOf(*o.at, work)
	if r == nil || r.of.generation != observed || r.drift.Type == "" {
		return c, false
	}
	return r.drift, true
}

// driftedCondition says of a work how many of its manifests differ; w.mu is held.
func (w *work) driftedCondition(manifests *tally) metav1.Condition {
	c := metav1.Condition{Type: wire.ConditionDrifted, Status: metav1.ConditionFalse, Reason: wire.ReasonNoDifference, Message: "All objects are as the manifests say"}
	if manifests != nil {
		differ := manifests.reasons[wire.ReasonFieldsDiffer] + manifests.reasons[wire.ReasonObjectMissing]
		switch {
		case differ > 0:
			c.Status, c.Reason = metav1.ConditionTrue, wire.ReasonManifestsDiffer
			c.Message = fmt.Sprintf("%d of %d manifests differ from what is in the cluster", differ, len(w.outcomes))
		case manifests.unknown > 0:
			c.Status, c.Reason = metav1.ConditionUnknown, wire.ReasonNotCompared
			c.Message = fmt.Sprintf("%d of %d manifests could not be compared", manifests.unknown, len(w.outcomes))
		}
	}
	c.Message += "; nothing is written in the cluster while the annotation " + wire.AnnotationDrift + " is report"
	return c
}
