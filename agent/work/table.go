// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// table holds every object that a work has something to do with, and nothing
// else of the cluster. It is a pure state machine: watches and executors tell it
// what they saw and did, it tells whom that concerns.
type table struct {
	// follow starts the watch of a scope and returns what stops it.
	follow func(scope) (stop func())
	// repair queues a work for its executor, report for its status alone. Both
	// are called with the table locked and must not block.
	repair, report func(work string)

	mu      sync.Mutex
	objects map[objectID]*object
	scopes  map[scope]*watched
	// since holds, by work, when the first event came that its status has yet to
	// tell of.
	since map[string]time.Time
}

// watched is a scope with at least one object in it.
type watched struct {
	members map[objectID]*object
	stop    func()
	// failure is why the scope cannot be watched, nil while it can.
	failure error
}

// object is what is known of one object. Its fields are guarded by table.mu.
type object struct {
	target
	claims []claim
	// writer is the work whose content was applied last: where two works share
	// an object the last one wins, once, instead of both writing in turn.
	writer string
	// baseline is the object as our last apply left it, nil before the first.
	baseline *sighting
	// live is the object as it was last seen; nil means absent once known is set.
	live  *sighting
	known bool
	// expected: it was here when its scope began to be read anew, so that the initial
	// events tell of it if it exists. One that came later may have missed its own.
	expected bool
	// ended: it is gone, and had ended by itself.
	ended bool
	// gone is the UID last seen deleted; it outlives live because an event may
	// come before the answer to the apply that it is about.
	gone types.UID
	// made is the UID of which it is known that we made it.
	made types.UID
	// turn has room for whoever writes the object or gives it up, one work at a time.
	turn chan struct{}
	// writing: a write has not ended, and what is seen meanwhile is judged after.
	writing bool
	pace    pace
	// contended says who changes it each time it was repaired, empty for nobody.
	contended string
	// tried is what was seen of the object when the last apply began.
	tried *sighting
	// guard is what of the object must stay as the baseline has it.
	guard guard
	// complete: the watch has to bring the object with its content.
	complete bool
}

// claim is one work's interest in an object.
type claim struct {
	work string
	// anchor is the UID of the work's anchor, empty while it is replaced.
	anchor types.UID
	// applied is the hash of the manifest that the work applied last; zero makes
	// it apply again.
	applied [32]byte
	// stale: the object strayed from what the work applied.
	stale bool
	// waived: the work is about to remove its reference from the object.
	waived bool
	// named: a write for another work may have brought the reference.
	named bool
	// intent is what the work wants of the object.
	intent intent
	// reading is what intent.reader last read, nil before the first time.
	reading *reading
}

// intent is what a work wants of an object, besides that it is there.
type intent struct {
	// content is the hash of the manifest and of how it is written, desire that of
	// the manifest alone.
	content, desire [32]byte
	// manager owns the fields; works with different ones share an object in peace.
	manager string
	// applies: by server-side apply.
	applies bool
	// passive: the work reads the object, or lets it be once it is there.
	passive bool
	// owns: the work's anchor is an owner of the object.
	owns   bool
	reader *reader
}

func newTable(follow func(scope) func(), repair, report func(string)) *table {
	return &table{follow: follow, repair: repair, report: report, objects: map[objectID]*object{}, scopes: map[scope]*watched{}, since: map[string]time.Time{}}
}

// claim registers a work's interest in an object, and watches it from then on.
func (t *table) claim(at target, work string, anchor types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.claimed(at, work, anchor)
}

// claimed registers a work's interest in an object and returns the object; t.mu is held.
func (t *table) claimed(at target, work string, anchor types.UID) *object {
	o, ok := t.objects[at.objectID]
	if !ok {
		o = &object{target: at, turn: make(chan struct{}, 1)}
		t.objects[at.objectID] = o
		t.enter(o)
	}
	if c := o.claimOf(work); c != nil {
		if c.anchor != anchor {
			c.anchor, c.applied, c.waived, c.named = anchor, [32]byte{}, false, false
		}
		return o
	}
	o.claims = append(o.claims, claim{work: work, anchor: anchor, intent: intent{owns: true}})
	o.sortClaims()
	return o
}

func (o *object) sortClaims() {
	slices.SortFunc(o.claims, func(a, b claim) int { return strings.Compare(a.work, b.work) })
}

// intend says what a work wants of an object that it claims.
func (t *table) intend(id objectID, work string, want intent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	c := o.claimOf(work)
	if c == nil {
		return
	}
	if c.intent.content != want.content && len(o.claims) > 1 {
		t.tell(o) // who shares the object may have to say so, or no more
	}
	if c.waived && want.owns { // its reference may have gone
		c.applied = [32]byte{}
	}
	c.waived = false
	c.intent = want
	if want.reader == nil {
		c.reading = nil
	}
	t.bring(o)
}

// bring has the object watched with its content if anybody reads it.
func (t *table) bring(o *object) {
	read := slices.ContainsFunc(o.claims, func(c claim) bool { return c.intent.reader != nil })
	if read == o.complete {
		return
	}
	t.leave(o)
	o.complete = read
	t.enter(o)
}

func (t *table) enter(o *object) {
	s := o.scope()
	w, ok := t.scopes[s]
	if !ok {
		w = &watched{members: map[objectID]*object{}}
		t.scopes[s] = w
		w.stop = t.follow(s)
	}
	o.expected = false
	w.members[o.objectID] = o
}

func (t *table) drop(o *object) {
	delete(t.objects, o.objectID)
	t.leave(o)
}

func (t *table) leave(o *object) {
	s := o.scope()
	w := t.scopes[s]
	delete(w.members, o.objectID)
	if len(w.members) == 0 {
		delete(t.scopes, s)
		w.stop()
	}
}

// finish takes the answer to an apply; got is nil when it failed.
func (t *table) finish(id objectID, work string, content [32]byte, got *sighting, by guard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	o.writing = false
	if got == nil && o.live == o.tried {
		return // nothing is new: the next attempt comes from whoever failed
	}
	if got != nil {
		c, before := o.claimOf(work), o.claimOf(o.writer)
		if c != nil && before != nil && before.intent.contends(c.intent) {
			t.repair(before.work) // its anchor has to say that it is the last one no more
		}
		o.writer, o.baseline, o.guard = work, got, by
		if c != nil {
			c.applied, c.stale = content, false
		}
		o.take(got)
	}
	t.judge(o)
}

// found takes what a work that does not write the object read of it; got is nil
// when it is not there.
func (t *table) found(id objectID, work string, content [32]byte, got *sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	o.writing = false
	if c := o.claimOf(work); c != nil {
		c.applied, c.stale = content, false
	}
	if got != nil {
		o.take(got)
	} else if o.live == nil {
		o.known = true
	}
	t.judge(o)
}

// owned takes the answer to a write of references alone; got is nil when it failed.
func (t *table) owned(id objectID, got *sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	o.writing = false
	if got == nil && o.live == o.tried {
		return // nothing is new: the next attempt comes from whoever failed
	}
	if got != nil && o.live != nil && o.live.uid == got.uid && newer(got.version, o.live.version) {
		live := *o.live // its metadata alone was read
		live.version, live.owners = got.version, got.owners
		o.live = &live
	}
	t.judge(o)
}

// take brings in what the answer to a request said, unless something later is known.
func (o *object) take(got *sighting) {
	o.known = true
	if o.live == nil || o.live.uid == o.gone || !newer(o.live.version, got.version) {
		o.live = got
	}
	if o.gone == got.uid {
		o.live = nil
	}
}

// vouch records that we made the object of that UID, whichever work it was for.
func (t *table) vouch(id objectID, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, ok := t.objects[id]; ok {
		o.made = uid
	}
}

// vouched tells whether that is recorded.
func (t *table) vouched(id objectID, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	return ok && uid != "" && o.made == uid
}

// observe takes an event of a watch: what an object is now, or that it is gone; at
// is when it happened, zero when that is not known.
func (t *table) observe(id objectID, seen *sighting, deleted bool, at time.Time, readings ...*reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return
	}
	if deleted {
		if o.live == nil || o.live.uid == seen.uid {
			o.live = seen // as it was last
		}
		t.vanish(o, seen.uid, at)
		return
	}
	if o.live != nil && o.live.uid == seen.uid && newer(o.live.version, seen.version) {
		return // older than the answer to our own apply
	}
	if o.live == nil || o.live.uid != seen.uid {
		t.reread(o)
	}
	if seen.ended && (o.live == nil || !o.live.ended) {
		t.record(o)
	}
	changed := o.live == nil || !o.known || o.live.health != seen.health || o.live.deleting != seen.deleting
	o.live, o.known = seen, true
	if o.note(readings) {
		changed = true
	}
	strayed := t.judge(o)
	if changed || strayed {
		t.happened(o, at)
	}
	if changed && !strayed {
		t.tell(o)
	}
}

// vanish records that an object is gone. Its works look at once: one of them
// has it back, or waits for exactly this.
func (t *table) vanish(o *object, uid types.UID, at time.Time) {
	o.gone, o.known = uid, true
	if o.live != nil && uid != "" && o.live.uid != uid {
		return // another one of the same name is there already
	}
	if o.live != nil {
		o.ended = o.live.ended
	}
	o.live = nil
	t.happened(o, at)
	t.judge(o)
	t.reread(o)
	t.record(o)
}

// record has the works of an object look at what their anchors say of it.
func (t *table) record(o *object) {
	for _, c := range o.claims {
		t.repair(c.work)
	}
}

// reread has an object that came or went looked at by the works that list it
// without writing it.
func (t *table) reread(o *object) {
	for i := range o.claims {
		if c := &o.claims[i]; c.intent.passive && !c.intent.owns {
			c.stale = true
			t.repair(c.work)
		}
	}
}

// expect begins the initial events of a watch, which tell of every member that exists.
func (t *table) expect(s scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w, ok := t.scopes[s]; ok {
		for _, o := range w.members {
			o.expected = true
		}
	}
}

// resync ends the initial events of a watch, taken at version: what was expected and not
// seen in them, and was not written since, is gone.
func (t *table) resync(s scope, seen map[objectID]struct{}, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.scopes[s]
	if !ok {
		return
	}
	failed := w.failure != nil
	w.failure = nil
	for id, o := range w.members {
		if failed {
			t.tell(o)
		}
		if _, ok := seen[id]; ok || !o.expected || o.since(version) {
			continue
		}
		if o.known && o.live == nil {
			continue
		}
		uid := o.gone
		if o.live != nil {
			uid = o.live.uid
		}
		t.vanish(o, uid, time.Time{})
	}
}

// fail records that a scope cannot be watched.
func (t *table) fail(s scope, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.scopes[s]
	if !ok || w.failure != nil {
		return
	}
	w.failure = err
	for _, o := range w.members {
		t.tell(o)
	}
}

// wants tells whether an object is worth decoding.
func (t *table) wants(id objectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.objects[id]
	return ok
}

// look returns what is known of an object: its state (nil when absent), whether
// that is known at all, and why it cannot be watched.
func (t *table) look(id objectID) (live *sighting, known bool, failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil, false, nil
	}
	return o.live, o.known, t.scopes[o.scope()].failure
}

// claimOf returns the claim of a work on an object, nil for none; t.mu is held.
func (t *table) claimOf(id objectID, work string) *claim {
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	return o.claimOf(work)
}

func (o *object) claimOf(work string) *claim {
	for i := range o.claims {
		if o.claims[i].work == work {
			return &o.claims[i]
		}
	}
	return nil
}

func (t *table) tell(o *object) {
	for _, c := range o.claims {
		t.report(c.work)
	}
}
