// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// begin marks an apply in flight and returns the anchors that own the object.
func (t *table) begin(id objectID, work string, now time.Time) []owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	o.tried = o.live
	if c := o.claimOf(work); c != nil && c.stale {
		o.pace.spend(now)
	}
	owners := make([]owner, 0, len(o.claims))
	for _, c := range o.claims {
		if c.owns() {
			owners = append(owners, owner{work: c.work, anchor: c.anchor})
		}
	}
	o.inFlight = append(o.inFlight, apply{work: work, owners: owners})
	return owners
}

// owner is an anchor by its work.
type owner struct {
	work   string
	anchor types.UID
}

// apply is an apply of one work in flight, with the owners that it repeats.
type apply struct {
	work   string
	owners []owner
}

// owns: an apply of the object, whichever work it is for, has to repeat the
// reference to this work's anchor.
func (c *claim) owns() bool { return c.anchor != "" && c.intent.owns && !c.waived }

// repeated: an apply in flight repeats a reference that the work does not want any
// more, and may bring it back.
func (o *object) repeated(c *claim) bool {
	return !c.owns() && slices.ContainsFunc(o.inFlight, func(a apply) bool { return a.repeats(c) })
}

// repeats goes by the anchor: the claim may have been transferred since.
func (a apply) repeats(c *claim) bool {
	return slices.ContainsFunc(a.owners, func(o owner) bool { return o.anchor == c.anchor })
}

// repeated tells whether the reference of a work that does not own an object may
// still come back. The work is queued when that is over.
func (t *table) repeated(id objectID, work string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return false
	}
	c := o.claimOf(work)
	return c != nil && o.repeated(c)
}

// waive ends a work's ownership of an object, which is watched until release: no
// apply that begins from now on repeats the reference to the work's anchor. While
// one that began before is in flight, repeated is true and the reference must not
// be removed; the work is queued when that is over.
func (t *table) waive(at target, work string, anchor types.UID) (repeated bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.claimed(at, work, anchor)
	c := o.claimOf(work)
	c.waived = true
	return o.repeated(c)
}

// end takes the apply of a work out of those in flight. Works whose reference it
// repeated, and who do not own the object any more, look again.
func (t *table) end(o *object, work string) {
	i := slices.IndexFunc(o.inFlight, func(a apply) bool { return a.work == work })
	if i < 0 {
		return
	}
	ended := o.inFlight[i]
	if o.inFlight = slices.Delete(o.inFlight, i, i+1); len(o.inFlight) == 0 {
		o.inFlight = nil
	}
	for i := range o.claims {
		if c := &o.claims[i]; !c.owns() && ended.repeats(c) && !o.repeated(c) {
			t.repair(c.work)
		}
	}
}

// transfer makes a work's claim that of another key, under which its anchor is known
// from now on. No apply repeats the anchor's reference any more: whether the anchor
// owned the object or the work had orphaned it, it must not own more than before.
func (t *table) transfer(id objectID, from, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok || o.claimOf(from) == nil {
		return
	}
	o.claims = slices.DeleteFunc(o.claims, func(c claim) bool { return c.work == to })
	c := o.claimOf(from)
	*c = claim{work: to, anchor: c.anchor, waived: true, intent: intent{owns: true}}
	if o.writer == from {
		o.writer = to
	}
	o.sortClaims()
}

// release ends a work's interest. When it was the writer of an object that
// others claim, one of those applies its own content.
func (t *table) release(id objectID, work string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	o.claims = slices.DeleteFunc(o.claims, func(c claim) bool { return c.work == work })
	if len(o.claims) == 0 {
		t.drop(o)
		return
	}
	t.bring(o)
	t.tell(o)
	if o.writer == work {
		heir := &o.claims[0]
		o.writer, heir.applied = heir.work, [32]byte{}
		t.repair(heir.work)
	}
}
