// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// owner is an anchor by its work.
type owner struct {
	work   string
	anchor types.UID
}

// lock waits until no other work writes an object or gives it up, and keeps them from
// it until unlock is called. Each write carries the owners known when it began: of two at
// once the one that arrives last could withdraw the other's reference, or bring back one
// that was removed. The object must be claimed; no work may lock two.
func (t *table) lock(ctx context.Context, id objectID) (unlock func(), _ error) {
	t.mu.Lock()
	o, ok := t.objects[id]
	t.mu.Unlock()
	if !ok {
		return func() {}, nil
	}
	select {
	case o.turn <- struct{}{}:
		return func() { <-o.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin marks a write in flight and returns the anchors that own the object. Whoever
// calls it has locked the object.
func (t *table) begin(id objectID, work string, now time.Time) []owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	o.tried, o.writing = o.live, true
	if c := o.claimOf(work); c != nil && (c.stale || o.lacks(c)) {
		o.pace.spend(now)
	}
	owners := make([]owner, 0, len(o.claims))
	for i := range o.claims {
		if c := &o.claims[i]; c.owns() {
			c.named = c.named || c.work != work
			owners = append(owners, owner{work: c.work, anchor: c.anchor})
		}
	}
	return owners
}

// owns: a write of the object, whichever work it is for, has to repeat the
// reference to this work's anchor.
func (c *claim) owns() bool { return c.anchor != "" && c.intent.owns && !c.waived }

// lacks: the object does not bear the reference of a work that says it applied it. Such
// an object would be deleted with the other works that it is in.
func (o *object) lacks(c *claim) bool {
	return c.owns() && c.applied != [32]byte{} && o.live != nil && !o.live.deleting && !slices.Contains(o.live.owners, c.anchor)
}

// otherOwners are the owners of an object besides a work. One whose anchor is being replaced
// has none at the moment.
func (t *table) otherOwners(id objectID, work string) []owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	var out []owner
	for i := range o.claims {
		if c := &o.claims[i]; c.work != work && c.intent.owns && !c.waived {
			c.named = true
			out = append(out, owner{work: c.work, anchor: c.anchor})
		}
	}
	return out
}

// named tells whether a write for another work may have made a work's anchor an owner
// of the object.
func (t *table) named(id objectID, work string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.claimOf(id, work)
	return c != nil && c.named
}

// waive ends a work's ownership of an object, which is watched until release: no
// write that begins from now on repeats the reference to the work's anchor.
func (t *table) waive(at target, work string, anchor types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.claimed(at, work, anchor).claimOf(work).waived = true
}

// replaceAnchor says that the anchor of a work that keeps an object is going, and that
// another one will own it: until that is claimed, no write repeats the reference.
func (t *table) replaceAnchor(id objectID, work string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claimOf(id, work); c != nil {
		c.anchor = ""
	}
}

// transfer makes a work's claim that of another key, under which its anchor is known
// from now on. No write repeats the anchor's reference any more: whether the anchor
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
