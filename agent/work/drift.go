// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"time"
)

// driftPolicy says by what drift is told from noise; it follows from how the object was
// last written.
type driftPolicy int

const (
	driftByFields    driftPolicy = iota // what our server-side applies own
	driftByEdits                        // anything but the status; the executor looks closer
	driftByOwnership                    // that it is there, and whose it is
)

// action is what a work has to do about an object.
type action int

const (
	actionNone     action = iota
	actionAddOwner        // to its anchor, which the object lacks; its content is as it should be
	actionApply
)

// nextAction says what work has to do to have content in an object, and how long to wait
// before: a fight with another writer is slowed down, not fought faster.
func (t *inventory) nextAction(id objectID, work string, content [32]byte, now time.Time) (what action, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return actionNone, 0
	}
	c := o.claimOf(work)
	switch {
	case c == nil:
		return actionNone, 0
	case c.applied != content:
		return actionApply, 0
	case c.hasDrifted:
		return actionApply, o.repairs.delay(now)
	case o.lacksOwner(c):
		return actionAddOwner, o.repairs.delay(now)
	default:
		return actionNone, 0
	}
}

// isNewContent tells whether a work has not applied content before.
func (t *inventory) isNewContent(id objectID, work string, content [32]byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id, work)
	return c == nil || c.applied != content
}

// detectDrift decides whether the object strayed from what was applied, and if it did
// has it repaired: by the work that wrote it last, and by those that own other
// fields of it. Of works that want the same fields the others stay out of it, but for
// their references, whoever removed one: an apply of ours of which the answer was lost
// may be done after later ones.
func (t *inventory) detectDrift(o *managedObject, r *requeue) (strayed bool) {
	if o.isWriting {
		return false
	}
	for i := range o.claims {
		if o.lacksOwner(&o.claims[i]) {
			strayed = true
			r.addWork(o.claims[i].work)
		}
	}
	if !o.hasDrifted() {
		return strayed
	}
	writer := o.claimOf(o.writer)
	for i := range o.claims {
		c := &o.claims[i]
		if c.work == o.writer || writer != nil && !c.desired.isPassive && c.desired.manager != writer.desired.manager {
			c.hasDrifted = true
			r.addWork(c.work)
		}
	}
	return true
}

func (o *managedObject) hasDrifted() bool {
	switch {
	case o.baseline == nil:
		return false
	case o.live == nil:
		return o.isKnown && !o.hasEnded()
	case o.live.isDeleting:
		return false // nothing can be done until it is gone
	case o.live.uid != o.baseline.uid:
		return true
	case !isNewer(o.live.resourceVersion, o.baseline.resourceVersion):
		return false
	}
	switch o.driftPolicy {
	case driftByEdits:
		// A version that is new, and nothing else, is a write of the same fields by the same
		// manager in the same second: by another agent of ours, for example.
		return o.live.allFields != o.baseline.allFields || o.live.allWrites == o.baseline.allWrites
	case driftByOwnership:
		return !slices.Equal(o.live.owners, o.baseline.owners) || o.live.specHash != o.baseline.specHash
	default:
		return o.live.ownFields != o.baseline.ownFields
	}
}

func (o *managedObject) scope() scope {
	s := scopeOf(o.target)
	s.hasContent = o.needsContent && isMetadataOnly(o.Group, o.Resource)
	return s
}

// isSince tells whether the object was seen, or written by us, after version.
func (o *managedObject) isSince(version string) bool {
	return o.isWriting ||
		o.live != nil && isNewer(o.live.resourceVersion, version) ||
		o.baseline != nil && isNewer(o.baseline.resourceVersion, version)
}
