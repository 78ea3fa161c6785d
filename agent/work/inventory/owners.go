// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// Owner is an anchor by its work.
type Owner struct {
	Work   string
	Anchor types.UID
}

// Lock waits until no other work writes an object or gives it up, and keeps them from
// it until unlock is called. Each write carries the owners known when it began: of two at
// once the one that arrives last could withdraw the other's reference, or bring back one
// that was removed. The object must be claimed; no work may lock two.
func (inv *Inventory) Lock(ctx context.Context, id manifest.ObjectID) (unlock func(), _ error) {
	inv.mu.Lock()
	o, ok := inv.objects[id]
	inv.mu.Unlock()
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

// BeginWrite marks a write in flight and returns the anchors that own the object. Whoever
// calls it has locked the object.
func (inv *Inventory) BeginWrite(id manifest.ObjectID, work string, now time.Time) []Owner {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return nil
	}
	o.beforeWrite, o.isWriting = o.live, true
	if c := o.claimOf(work); c != nil && (c.hasDrifted || o.lacksOwner(c)) {
		o.repairs.recordRepair(now)
	}
	owners := make([]Owner, 0, len(o.claims))
	for i := range o.claims {
		if c := &o.claims[i]; c.isOwner() {
			c.mayBeOwner = c.mayBeOwner || c.work != work
			owners = append(owners, Owner{Work: c.work, Anchor: c.anchor})
		}
	}
	return owners
}

// isOwner: a write of the object, whichever work it is for, has to repeat the
// reference to this work's anchor.
func (c *claim) isOwner() bool { return c.anchor != "" && c.desired.IsOwner && !c.ownershipDropped }

// lacksOwner: the object does not bear the reference of a work that says it applied it. Such
// an object would be deleted with the other works that it is in.
func (o *managedObject) lacksOwner(c *claim) bool {
	return c.isOwner() && c.applied != [32]byte{} && o.live != nil && !o.live.IsDeleting && !slices.Contains(o.live.Owners, c.anchor)
}

// OtherOwners are the owners of an object besides a work. One whose anchor is being replaced
// has none at the moment.
func (inv *Inventory) OtherOwners(id manifest.ObjectID, work string) []Owner {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return nil
	}
	var out []Owner
	for i := range o.claims {
		if c := &o.claims[i]; c.work != work && c.desired.IsOwner && !c.ownershipDropped {
			c.mayBeOwner = true
			out = append(out, Owner{Work: c.work, Anchor: c.anchor})
		}
	}
	return out
}

// MayBeOwner tells whether a write for another work may have made a work's anchor an owner
// of the object.
func (inv *Inventory) MayBeOwner(id manifest.ObjectID, work string) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	c := inv.claimOf(id, work)
	return c != nil && c.mayBeOwner
}

// DropOwnership ends a work's ownership of an object, which is watched until release: no
// write that begins from now on repeats the reference to the work's anchor.
func (inv *Inventory) DropOwnership(at manifest.Target, work string, anchor types.UID) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.ensureClaim(at, work, anchor).claimOf(work).ownershipDropped = true
}

// ClearAnchor says that the anchor of a work that keeps an object is going, and that
// another one will own it: until that is claimed, no write repeats the reference.
func (inv *Inventory) ClearAnchor(id manifest.ObjectID, work string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if c := inv.claimOf(id, work); c != nil {
		c.anchor = ""
	}
}

// TransferClaim makes a work's claim that of another key, under which its anchor is known
// from now on. No write repeats the anchor's reference any more: whether the anchor
// owned the object or the work had orphaned it, it must not own more than before.
func (inv *Inventory) TransferClaim(id manifest.ObjectID, from, to string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok || o.claimOf(from) == nil {
		return
	}
	o.claims = slices.DeleteFunc(o.claims, func(c claim) bool { return c.work == to })
	c := o.claimOf(from)
	*c = claim{work: to, anchor: c.anchor, ownershipDropped: true, desired: DesiredState{IsOwner: true}}
	if o.writer == from {
		o.writer = to
	}
	o.sortClaims()
}

// ReleaseClaim ends a work's interest. When it was the writer of an object that
// others claim, one of those applies its own content.
func (inv *Inventory) ReleaseClaim(id manifest.ObjectID, work string) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return r
	}
	o.claims = slices.DeleteFunc(o.claims, func(c claim) bool { return c.work == work })
	if len(o.claims) == 0 {
		inv.remove(o)
		return r
	}
	inv.updateScope(o)
	r.addStatuses(o)
	if o.writer == work {
		heir := &o.claims[0]
		o.writer, heir.applied = heir.work, [32]byte{}
		r.addWork(heir.work)
	}
	return r
}

// FieldWriter is a field manager and how it writes.
type FieldWriter struct {
	Manager   string
	Operation metav1.ManagedFieldsOperationType
}

// OtherWriters are as whom works besides one write an object.
func (inv *Inventory) OtherWriters(id manifest.ObjectID, work string) []FieldWriter {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return nil
	}
	var out []FieldWriter
	for _, c := range o.claims {
		if c.work == work || c.desired.IsPassive {
			continue
		}
		w := FieldWriter{Manager: c.desired.Manager, Operation: metav1.ManagedFieldsOperationUpdate}
		if c.desired.AppliesServerSide {
			w.Operation = metav1.ManagedFieldsOperationApply
		}
		out = append(out, w)
	}
	return out
}
