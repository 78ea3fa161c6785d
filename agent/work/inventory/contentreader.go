// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/agent/work/manifest"
)

// Reader reads of an object what a manifest's rules ask for. It is replaced with
// every version of its work, never changed.
type Reader struct {
	// Generation of the work that asks.
	Generation int64
	Feedback   *feedback.Program
	Rules      *conditionrules.Set
	// Comparison tells what differs from the manifest, nil where nobody asks.
	Comparison *Comparison
}

// Reading is what a reader read of one version of an object.
type Reading struct {
	Reader *Reader
	// FeedbackCondition says how the feedback went.
	FeedbackCondition metav1.Condition
	Values            []workv1.FeedbackValue
	Conditions        []metav1.Condition
	// DriftCondition says what differs, without a type where nobody asks.
	DriftCondition metav1.Condition
}

// ReadObject evaluates the rules on an object.
func (r *Reader) ReadObject(obj *unstructured.Unstructured) *Reading {
	values, err := r.Feedback.Eval(obj)
	out := &Reading{Reader: r, Values: values, FeedbackCondition: r.Feedback.Condition(err), Conditions: r.Rules.Eval(obj, r.Generation)}
	if r.Comparison != nil {
		out.DriftCondition = r.Comparison.Compare(obj)
	}
	return out
}

// equals tells whether two readings say the same.
func (r *Reading) equals(other *Reading) bool {
	return other != nil && r.Reader == other.Reader && equality.Semantic.DeepEqual(r.FeedbackCondition, other.FeedbackCondition) && r.DriftCondition == other.DriftCondition &&
		equality.Semantic.DeepEqual(r.Values, other.Values) && equality.Semantic.DeepEqual(r.Conditions, other.Conditions)
}

// ReadAll reads an object for everybody who asks; it may take time.
func ReadAll(readers []*Reader, obj *unstructured.Unstructured) []*Reading {
	var out []*Reading
	for _, r := range readers {
		out = append(out, r.ReadObject(obj))
	}
	return out
}

// Readers of an object; several works may have their own.
func (inv *Inventory) Readers(id manifest.ObjectID) []*Reader {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return nil
	}
	var out []*Reader
	for _, c := range o.claims {
		if c.desired.Reader != nil && !slices.Contains(out, c.desired.Reader) {
			out = append(out, c.desired.Reader)
		}
	}
	return out
}

// storeReadings keeps readings for those who asked for them; o's table is locked.
func (o *managedObject) storeReadings(readings []*Reading) (changed bool) {
	for _, r := range readings {
		for i := range o.claims {
			c := &o.claims[i]
			if c.desired.Reader != r.Reader || r.equals(c.reading) {
				continue
			}
			c.reading, changed = r, true
		}
	}
	return changed
}

// RecordReadings keeps readings of an object at a version, unless a later one is known.
func (inv *Inventory) RecordReadings(id manifest.ObjectID, version string, readings []*Reading) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok || o.live != nil && isNewer(o.live.ResourceVersion, version) && o.unreadBy() == nil {
		return
	}
	o.storeReadings(readings)
}

// unreadBy returns a reader that has read nothing yet, if there is one.
func (o *managedObject) unreadBy() *Reader {
	for _, c := range o.claims {
		if c.desired.Reader != nil && (c.reading == nil || c.reading.Reader != c.desired.Reader) {
			return c.desired.Reader
		}
	}
	return nil
}

// NeedsRead tells whether somebody has yet to read an object for the first time: the
// next event may be a long time off.
func (inv *Inventory) NeedsRead(id manifest.ObjectID) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	return ok && o.unreadBy() != nil
}

// ReadingOf is what a work's rules last read of an object.
func (inv *Inventory) ReadingOf(id manifest.ObjectID, work string) *Reading {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	c := inv.claimOf(id, work)
	if c == nil {
		return nil
	}
	return c.reading
}

// ConflictingWorks are the works that want other values for the same fields of an object.
func (inv *Inventory) ConflictingWorks(id manifest.ObjectID, work string) []string {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
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
func (i DesiredState) conflictsWith(other DesiredState) bool {
	return !i.IsPassive && !other.IsPassive && i.ManifestHash != [32]byte{} && other.ManifestHash != [32]byte{} &&
		i.Manager == other.Manager && i.ManifestHash != other.ManifestHash
}

// supersededContent tells whether another work wrote an object after this one did, and what
// this one had written: after a restart it must not write that again.
func (inv *Inventory) supersededContent(id manifest.ObjectID, work string) (content [32]byte, ok bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, known := inv.objects[id]
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
func (inv *Inventory) markSuperseded(id manifest.ObjectID, work string, content [32]byte) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if c := inv.claimOf(id, work); c != nil {
		c.applied = content
	}
}
