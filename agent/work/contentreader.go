// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
)

// contentReader reads of an object what a manifest's rules ask for. It is replaced with
// every version of its work, never changed.
type contentReader struct {
	// generation of the work that asks.
	generation int64
	feedback   *feedback.Program
	rules      *conditionrules.Set
	// comparison tells what differs from the manifest, nil where nobody asks.
	comparison *comparison
}

// reading is what a reader read of one version of an object.
type reading struct {
	reader *contentReader
	// feedbackCondition says how the feedback went.
	feedbackCondition metav1.Condition
	values            []workv1.FeedbackValue
	conditions        []metav1.Condition
	// driftCondition says what differs, without a type where nobody asks.
	driftCondition metav1.Condition
}

func (r *contentReader) readObject(obj *unstructured.Unstructured) *reading {
	values, err := r.feedback.Eval(obj)
	out := &reading{reader: r, values: values, feedbackCondition: r.feedback.Condition(err), conditions: r.rules.Eval(obj, r.generation)}
	if r.comparison != nil {
		out.driftCondition = r.comparison.compare(obj)
	}
	return out
}

// equals tells whether two readings say the same.
func (r *reading) equals(other *reading) bool {
	return other != nil && r.reader == other.reader && equality.Semantic.DeepEqual(r.feedbackCondition, other.feedbackCondition) && r.driftCondition == other.driftCondition &&
		equality.Semantic.DeepEqual(r.values, other.values) && equality.Semantic.DeepEqual(r.conditions, other.conditions)
}

// readAll reads an object for everybody who asks; it may take time.
func readAll(readers []*contentReader, obj *unstructured.Unstructured) []*reading {
	var out []*reading
	for _, r := range readers {
		out = append(out, r.readObject(obj))
	}
	return out
}

// readers of an object; several works may have their own.
func (t *inventory) readers(id objectID) []*contentReader {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	var out []*contentReader
	for _, c := range o.claims {
		if c.desired.reader != nil && !slices.Contains(out, c.desired.reader) {
			out = append(out, c.desired.reader)
		}
	}
	return out
}

// storeReadings keeps readings for those who asked for them; o's table is locked.
func (o *managedObject) storeReadings(readings []*reading) (changed bool) {
	for _, r := range readings {
		for i := range o.claims {
			c := &o.claims[i]
			if c.desired.reader != r.reader || r.equals(c.reading) {
				continue
			}
			c.reading, changed = r, true
		}
	}
	return changed
}

// recordReadings keeps readings of an object at a version, unless a later one is known.
func (t *inventory) recordReadings(id objectID, version string, readings []*reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok || o.live != nil && isNewer(o.live.resourceVersion, version) && o.unreadBy() == nil {
		return
	}
	o.storeReadings(readings)
}

// unreadBy returns a reader that has read nothing yet, if there is one.
func (o *managedObject) unreadBy() *contentReader {
	for _, c := range o.claims {
		if c.desired.reader != nil && (c.reading == nil || c.reading.reader != c.desired.reader) {
			return c.desired.reader
		}
	}
	return nil
}

// needsRead tells whether somebody has yet to read an object for the first time: the
// next event may be a long time off.
func (t *inventory) needsRead(id objectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	return ok && o.unreadBy() != nil
}

// readingOf is what a work's rules last read of an object.
func (t *inventory) readingOf(id objectID, work string) *reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id, work)
	if c == nil {
		return nil
	}
	return c.reading
}

// conflictingWorks are the works that want other values for the same fields of an object.
func (t *inventory) conflictingWorks(id objectID, work string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	own := o.claimOf(work)
	if own == nil {
		return nil
	}
	var out []string
	for _, c := range o.claims {
		if c.work != work && c.desired.conflictsWith(own.desired) {
			out = append(out, c.work)
		}
	}
	return out
}

// conflictsWith tells whether two works want different values of the same fields.
func (i desiredState) conflictsWith(other desiredState) bool {
	return !i.isPassive && !other.isPassive && i.manifestHash != [32]byte{} && other.manifestHash != [32]byte{} &&
		i.manager == other.manager && i.manifestHash != other.manifestHash
}

// supersededContent tells whether another work wrote an object after this one did, and what
// this one had written: after a restart it must not write that again.
func (t *inventory) supersededContent(id objectID, work string) (content [32]byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, known := t.objects[id]
	if !known || o.writer == work || o.writer == "" {
		return content, false
	}
	c := o.claimOf(work)
	if c == nil || c.applied == content {
		return content, false
	}
	writer := o.claimOf(o.writer)
	return c.applied, writer != nil && writer.desired.conflictsWith(c.desired)
}

// markSuperseded records of a time before this process that another work wrote an object
// after this one.
func (t *inventory) markSuperseded(id objectID, work string, content [32]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claimOf(id, work); c != nil {
		c.applied = content
	}
}
