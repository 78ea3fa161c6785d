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

// reader reads of an object what a manifest's rules ask for. It is replaced with
// every version of its work, never changed.
type reader struct {
	// generation of the work that asks.
	generation int64
	feedback   *feedback.Program
	rules      *conditionrules.Set
	// compare tells what differs from the manifest, nil where nobody asks.
	compare *comparison
}

// reading is what a reader read of one version of an object.
type reading struct {
	of *reader
	// synced says how the feedback went.
	synced     metav1.Condition
	values     []workv1.FeedbackValue
	conditions []metav1.Condition
	// drift says what differs, without a type where nobody asks.
	drift metav1.Condition
}

func (r *reader) read(obj *unstructured.Unstructured) *reading {
	values, err := r.feedback.Eval(obj)
	out := &reading{of: r, values: values, synced: r.feedback.Condition(err), conditions: r.rules.Eval(obj, r.generation)}
	if r.compare != nil {
		out.drift = r.compare.of(obj)
	}
	return out
}

// same tells whether two readings say the same.
func (r *reading) same(other *reading) bool {
	return other != nil && r.of == other.of && equality.Semantic.DeepEqual(r.synced, other.synced) && r.drift == other.drift &&
		equality.Semantic.DeepEqual(r.values, other.values) && equality.Semantic.DeepEqual(r.conditions, other.conditions)
}

// readAll reads an object for everybody who asks; it may take time.
func readAll(readers []*reader, obj *unstructured.Unstructured) []*reading {
	var out []*reading
	for _, r := range readers {
		out = append(out, r.read(obj))
	}
	return out
}

// readers of an object; several works may have their own.
func (t *table) readers(id objectID) []*reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	var out []*reader
	for _, c := range o.claims {
		if c.intent.reader != nil && !slices.Contains(out, c.intent.reader) {
			out = append(out, c.intent.reader)
		}
	}
	return out
}

// note keeps readings for those who asked for them; o's table is locked.
func (o *object) note(readings []*reading) (changed bool) {
	for _, r := range readings {
		for i := range o.claims {
			c := &o.claims[i]
			if c.intent.reader != r.of || r.same(c.reading) {
				continue
			}
			c.reading, changed = r, true
		}
	}
	return changed
}

// note keeps readings of an object at a version, unless a later one is known.
func (t *table) note(id objectID, version string, readings []*reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok || o.live != nil && newer(o.live.version, version) && o.unread() == nil {
		return
	}
	o.note(readings)
}

// unread returns a reader that has read nothing yet, if there is one.
func (o *object) unread() *reader {
	for _, c := range o.claims {
		if c.intent.reader != nil && (c.reading == nil || c.reading.of != c.intent.reader) {
			return c.intent.reader
		}
	}
	return nil
}

// unread tells whether somebody has yet to read an object for the first time: the
// next event may be a long time off.
func (t *table) unread(id objectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	return ok && o.unread() != nil
}

// readingOf is what a work's rules last read of an object.
func (t *table) readingOf(id objectID, work string) *reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id, work)
	if c == nil {
		return nil
	}
	return c.reading
}

// rivals are the works that want other values for the same fields of an object.
func (t *table) rivals(id objectID, work string) []string {
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
		if c.work != work && c.intent.contends(own.intent) {
			out = append(out, c.work)
		}
	}
	return out
}

// contends tells whether two works want different values of the same fields.
func (i intent) contends(other intent) bool {
	return !i.passive && !other.passive && i.desire != [32]byte{} && other.desire != [32]byte{} &&
		i.manager == other.manager && i.desire != other.desire
}

// yielded tells whether another work wrote an object after this one did, and what
// this one had written: after a restart it must not write that again.
func (t *table) yielded(id objectID, work string) (content [32]byte, ok bool) {
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
	return c.applied, writer != nil && writer.intent.contends(c.intent)
}

// yield records of a time before this process that another work wrote an object
// after this one.
func (t *table) yield(id objectID, work string, content [32]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claimOf(id, work); c != nil {
		c.applied = content
	}
}
