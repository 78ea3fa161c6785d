// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"time"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// DriftPolicy says by what drift is told from noise; it follows from how the object was
// last written.
type DriftPolicy int

const (
	DriftByFields    DriftPolicy = iota // what our server-side applies own
	DriftByEdits                        // anything but the status; the executor looks closer
	DriftByOwnership                    // that it is there, and whose it is
)

// Action is what a work has to do about an object.
type Action int

const (
	ActionNone     Action = iota // the object is as it was applied
	ActionAddOwner               // the object lacks the reference to the work's anchor; its content is as it should be
	ActionApply                  // the content is new, or has drifted
)

// NextAction says what work has to do to have content in an object, and how long to wait
// before: a fight with another writer is slowed down, not fought faster.
func (inv *Inventory) NextAction(id manifest.ObjectID, work string, content [32]byte, now time.Time) (what Action, wait time.Duration) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return ActionNone, 0
	}
	c := o.claimOf(work)
	switch {
	case c == nil:
		return ActionNone, 0
	case c.applied != content:
		return ActionApply, 0
	case c.hasDrifted:
		return ActionApply, o.repairs.delay(now)
	case o.lacksOwner(c):
		return ActionAddOwner, o.repairs.delay(now)
	default:
		return ActionNone, 0
	}
}

// IsNewContent tells whether a work has not applied content before.
func (inv *Inventory) IsNewContent(id manifest.ObjectID, work string, content [32]byte) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	c := inv.claimOf(id, work)
	return c == nil || c.applied != content
}

// detectDrift decides whether the object strayed from what was applied, and if it did
// has it repaired: by the work that wrote it last, and by those that own other
// fields of it. Of works that want the same fields the others stay out of it, but for
// their references, whoever removed one: an apply of ours of which the answer was lost
// may be done after later ones.
func (inv *Inventory) detectDrift(o *managedObject, r *Requeue) (strayed bool) {
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
		if c.work == o.writer || writer != nil && !c.desired.IsPassive && c.desired.Manager != writer.desired.Manager {
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
	case o.live.IsDeleting:
		return false // nothing can be done until it is gone
	case o.live.UID != o.baseline.UID:
		return true
	case !isNewer(o.live.ResourceVersion, o.baseline.ResourceVersion):
		return false
	}
	switch o.driftPolicy {
	case DriftByEdits:
		// A version that is new, and nothing else, is a write of the same fields by the same
		// manager in the same second: by another agent of ours, for example.
		return o.live.allFields != o.baseline.allFields || o.live.allWrites == o.baseline.allWrites
	case DriftByOwnership:
		return !slices.Equal(o.live.Owners, o.baseline.Owners) || o.live.specHash != o.baseline.specHash
	default:
		return o.live.ownFields != o.baseline.ownFields
	}
}

func (o *managedObject) scope() Scope {
	s := scopeOf(o.Target)
	s.HasContent = o.needsContent && IsMetadataOnly(o.Group, o.Resource)
	return s
}

// isSince tells whether the object was seen, or written by us, after version.
func (o *managedObject) isSince(version string) bool {
	return o.isWriting ||
		o.live != nil && isNewer(o.live.ResourceVersion, version) ||
		o.baseline != nil && isNewer(o.baseline.ResourceVersion, version)
}
