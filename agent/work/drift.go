// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"time"
)

// guard says by what drift is told from noise; it follows from how the object was
// last written.
type guard int

const (
	guardFields    guard = iota // what our server-side applies own
	guardEdits                  // anything but the status; the executor looks closer
	guardOwnership              // that it is there, and whose it is
)

// need is what a work has to do about an object.
type need int

const (
	needNothing   need = iota
	needReference      // to its anchor, which the object lacks; its content is as it should be
	needApply
)

// due says what work has to do to have content in an object, and how long to wait
// before: a fight with another writer is slowed down, not fought faster.
func (t *table) due(id objectID, work string, content [32]byte, now time.Time) (what need, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return needNothing, 0
	}
	c := o.claimOf(work)
	switch {
	case c == nil:
		return needNothing, 0
	case c.applied != content:
		return needApply, 0
	case c.stale:
		return needApply, o.pace.wait(now)
	case o.lacks(c):
		return needReference, o.pace.wait(now)
	default:
		return needNothing, 0
	}
}

// isNew tells whether a work has not applied content before.
func (t *table) isNew(id objectID, work string, content [32]byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id, work)
	return c == nil || c.applied != content
}

// judge decides whether the object strayed from what was applied, and if it did
// has it repaired: by the work that wrote it last, and by those that own other
// fields of it. Of works that want the same fields the others stay out of it, but for
// their references, whoever removed one: an apply of ours of which the answer was lost
// may be done after later ones.
func (t *table) judge(o *object) (strayed bool) {
	if o.writing {
		return false
	}
	for i := range o.claims {
		if o.lacks(&o.claims[i]) {
			strayed = true
			t.repair(o.claims[i].work)
		}
	}
	if !o.astray() {
		return strayed
	}
	writer := o.claimOf(o.writer)
	for i := range o.claims {
		c := &o.claims[i]
		if c.work == o.writer || writer != nil && !c.intent.passive && c.intent.manager != writer.intent.manager {
			c.stale = true
			t.repair(c.work)
		}
	}
	return true
}

func (o *object) astray() bool {
	switch {
	case o.baseline == nil:
		return false
	case o.live == nil:
		return o.known && !o.hasEnded()
	case o.live.deleting:
		return false // nothing can be done until it is gone
	case o.live.uid != o.baseline.uid:
		return true
	case !newer(o.live.version, o.baseline.version):
		return false
	}
	switch o.guard {
	case guardEdits:
		// A version that is new, and nothing else, is a write of the same fields by the same
		// manager in the same second: by another agent of ours, for example.
		return o.live.edits != o.baseline.edits || o.live.writes == o.baseline.writes
	case guardOwnership:
		return !slices.Equal(o.live.owners, o.baseline.owners) || o.live.config != o.baseline.config
	default:
		return o.live.fields != o.baseline.fields
	}
}

func (o *object) scope() scope {
	s := scopeOf(o.target)
	s.complete = o.complete && metadataOnly(o.Group, o.Resource)
	return s
}

// since tells whether the object was seen, or written by us, after version.
func (o *object) since(version string) bool {
	return o.writing ||
		o.live != nil && newer(o.live.version, version) ||
		o.baseline != nil && newer(o.baseline.version, version)
}
