// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// workAnchor is an anchor by its work.
type workAnchor struct {
	work   string
	anchor types.UID
}

// lock waits until no other work writes an object or gives it up, and keeps them from
// it until unlock is called. Each write carries the owners known when it began: of two at
// once the one that arrives last could withdraw the other's reference, or bring back one
// that was removed. The object must be claimed; no work may lock two.
func (t *inventory) lock(ctx context.Context, id objectID) (unlock func(), _ error) {
	t.mu.Lock()
	o, ok := t.objects[id]
	t.mu.Unlock()
	if !ok {
		return func() {}, nil
	}
	select {
	case o.writeLock <- struct{}{}:
		return func() { <-o.writeLock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// beginWrite marks a write in flight and returns the anchors that own the object. Whoever
// calls it has locked the object.
func (t *inventory) beginWrite(id objectID, work string, now time.Time) []workAnchor {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	o.beforeWrite, o.isWriting = o.live, true
	if c := o.claimOf(work); c != nil && (c.hasDrifted || o.lacksOwner(c)) {
		o.repairs.recordRepair(now)
	}
	owners := make([]workAnchor, 0, len(o.claims))
	for i := range o.claims {
		if c := &o.claims[i]; c.isOwner() {
			c.mayBeOwner = c.mayBeOwner || c.work != work
			owners = append(owners, workAnchor{work: c.work, anchor: c.anchor})
		}
	}
	return owners
}

// isOwner: a write of the object, whichever work it is for, has to repeat the
// reference to this work's anchor.
func (c *claim) isOwner() bool { return c.anchor != "" && c.desired.isOwner && !c.ownershipDropped }

// lacksOwner: the object does not bear the reference of a work that says it applied it. Such
// an object would be deleted with the other works that it is in.
func (o *managedObject) lacksOwner(c *claim) bool {
	return c.isOwner() && c.applied != [32]byte{} && o.live != nil && !o.live.isDeleting && !slices.Contains(o.live.owners, c.anchor)
}

// otherOwners are the owners of an object besides a work. One whose anchor is being replaced
// has none at the moment.
func (t *inventory) otherOwners(id objectID, work string) []workAnchor {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	var out []workAnchor
	for i := range o.claims {
		if c := &o.claims[i]; c.work != work && c.desired.isOwner && !c.ownershipDropped {
			c.mayBeOwner = true
			out = append(out, workAnchor{work: c.work, anchor: c.anchor})
		}
	}
	return out
}

// mayBeOwner tells whether a write for another work may have made a work's anchor an owner
// of the object.
func (t *inventory) mayBeOwner(id objectID, work string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id, work)
	return c != nil && c.mayBeOwner
}

// dropOwnership ends a work's ownership of an object, which is watched until release: no
// write that begins from now on repeats the reference to the work's anchor.
func (t *inventory) dropOwnership(at target, work string, anchor types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ensureClaim(at, work, anchor).claimOf(work).ownershipDropped = true
}

// clearAnchor says that the anchor of a work that keeps an object is going, and that
// another one will own it: until that is claimed, no write repeats the reference.
func (t *inventory) clearAnchor(id objectID, work string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claimOf(id, work); c != nil {
		c.anchor = ""
	}
}

// transferClaim makes a work's claim that of another key, under which its anchor is known
// from now on. No write repeats the anchor's reference any more: whether the anchor
// owned the object or the work had orphaned it, it must not own more than before.
func (t *inventory) transferClaim(id objectID, from, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok || o.claimOf(from) == nil {
		return
	}
	o.claims = slices.DeleteFunc(o.claims, func(c claim) bool { return c.work == to })
	c := o.claimOf(from)
	*c = claim{work: to, anchor: c.anchor, ownershipDropped: true, desired: desiredState{isOwner: true}}
	if o.writer == from {
		o.writer = to
	}
	o.sortClaims()
}

// releaseClaim ends a work's interest. When it was the writer of an object that
// others claim, one of those applies its own content.
func (t *inventory) releaseClaim(id objectID, work string) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	o.claims = slices.DeleteFunc(o.claims, func(c claim) bool { return c.work == work })
	if len(o.claims) == 0 {
		t.remove(o)
		return r
	}
	t.updateScope(o)
	r.addStatuses(o)
	if o.writer == work {
		heir := &o.claims[0]
		o.writer, heir.applied = heir.work, [32]byte{}
		r.addWork(heir.work)
	}
	return r
}
