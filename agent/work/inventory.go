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

// inventory holds every object that a work has something to do with, and nothing
// else of the cluster. It is a pure state machine: watches and executors record in it
// what they saw and did, and are told which works that concerns.
type inventory struct {
	// follow starts the watch of a scope and returns what stops it.
	follow func(scope) (stop func())

	mu      sync.Mutex
	objects map[objectID]*managedObject
	scopes  map[scope]*watchedScope
	// firstEvents holds, by work, when the first event came that its status has yet to
	// tell of.
	firstEvents map[string]time.Time
}

// watchedScope is a scope with at least one object in it.
type watchedScope struct {
	members map[objectID]*managedObject
	stop    func()
	// failure is why the scope cannot be watched, nil while it can.
	failure error
}

// managedObject is what is known of one object. Its fields are guarded by table.mu.
type managedObject struct {
	target
	claims []claim
	// writer is the work whose content was applied last: where two works share
	// an object the last one wins, once, instead of both writing in turn.
	writer string
	// baseline is the object as our last apply left it, nil before the first.
	baseline *observedObject
	// live is the object as it was last seen; nil means absent once known is set.
	live    *observedObject
	isKnown bool
	// isExpected: it was here when its scope began to be read anew, so that the initial
	// events tell of it if it exists. One that came later may have missed its own.
	isExpected bool
	// hadEnded: it is gone, and had ended by itself.
	hadEnded bool
	// deletedUID is the UID last seen deleted; it outlives live because an event may
	// come before the answer to the apply that it is about.
	deletedUID types.UID
	// createdUID is the UID of which it is known that we made it.
	createdUID types.UID
	// writeLock has room for whoever writes the object or gives it up, one work at a time.
	writeLock chan struct{}
	// isWriting: a write has not ended, and what is seen meanwhile is judged after.
	isWriting bool
	repairs   repairLimit
	// contention says who changes it each time it was repaired, empty for nobody.
	contention string
	// beforeWrite is what was seen of the object when the last apply began.
	beforeWrite *observedObject
	// driftPolicy is what of the object must stay as the baseline has it.
	driftPolicy driftPolicy
	// needsContent: the watch has to bring the object with its content.
	needsContent bool
}

// claim is one work's interest in an object.
type claim struct {
	work string
	// anchor is the UID of the work's anchor, empty while it is replaced.
	anchor types.UID
	// applied is the hash of the manifest that the work applied last; zero makes
	// it apply again.
	applied [32]byte
	// hasDrifted: the object strayed from what the work applied.
	hasDrifted bool
	// ownershipDropped: the work is about to remove its reference from the object.
	ownershipDropped bool
	// mayBeOwner: a write for another work may have brought the reference.
	mayBeOwner bool
	// desired is what the work wants of the object.
	desired desiredState
	// reading is what intent.reader last read, nil before the first time.
	reading *reading
}

// desiredState is what a work wants of an object, besides that it is there.
type desiredState struct {
	// contentHash is the hash of the manifest and of how it is written, desire that of
	// the manifest alone.
	contentHash, manifestHash [32]byte
	// manager owns the fields; works with different ones share an object in peace.
	manager string
	// appliesServerSide: by server-side apply.
	appliesServerSide bool
	// isPassive: the work reads the object, or lets it be once it is there.
	isPassive bool
	// isOwner: the work's anchor is an owner of the object.
	isOwner bool
	reader  *contentReader
}

func newInventory(follow func(scope) func()) *inventory {
	return &inventory{follow: follow, objects: map[objectID]*managedObject{}, scopes: map[scope]*watchedScope{}, firstEvents: map[string]time.Time{}}
}

// addClaim registers a work's interest in an object, and watches it from then on.
func (t *inventory) addClaim(at target, work string, anchor types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ensureClaim(at, work, anchor)
}

// ensureClaim registers a work's interest in an object and returns the object; t.mu is held.
func (t *inventory) ensureClaim(at target, work string, anchor types.UID) *managedObject {
	o, ok := t.objects[at.objectID]
	if !ok {
		o = &managedObject{target: at, writeLock: make(chan struct{}, 1)}
		t.objects[at.objectID] = o
		t.addToScope(o)
	}
	if c := o.claimOf(work); c != nil {
		if c.anchor != anchor {
			c.anchor, c.applied, c.ownershipDropped, c.mayBeOwner = anchor, [32]byte{}, false, false
		}
		return o
	}
	o.claims = append(o.claims, claim{work: work, anchor: anchor, desired: desiredState{isOwner: true}})
	o.sortClaims()
	return o
}

func (o *managedObject) sortClaims() {
	slices.SortFunc(o.claims, func(a, b claim) int { return strings.Compare(a.work, b.work) })
}

// setDesired says what a work wants of an object that it claims.
func (t *inventory) setDesired(id objectID, work string, want desiredState) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	c := o.claimOf(work)
	if c == nil {
		return r
	}
	if c.desired.contentHash != want.contentHash && len(o.claims) > 1 {
		r.addStatuses(o) // who shares the object may have to say so, or no more
	}
	if c.ownershipDropped && want.isOwner { // its reference may have gone
		c.applied = [32]byte{}
	}
	c.ownershipDropped = false
	c.desired = want
	if want.reader == nil {
		c.reading = nil
	}
	t.updateScope(o)
	return r
}

// updateScope has the object watched with its content if anybody reads it.
func (t *inventory) updateScope(o *managedObject) {
	read := slices.ContainsFunc(o.claims, func(c claim) bool { return c.desired.reader != nil })
	if read == o.needsContent {
		return
	}
	t.removeFromScope(o)
	o.needsContent = read
	t.addToScope(o)
}

func (t *inventory) addToScope(o *managedObject) {
	s := o.scope()
	w, ok := t.scopes[s]
	if !ok {
		w = &watchedScope{members: map[objectID]*managedObject{}}
		t.scopes[s] = w
		w.stop = t.follow(s)
	}
	o.isExpected = false
	w.members[o.objectID] = o
}

func (t *inventory) remove(o *managedObject) {
	delete(t.objects, o.objectID)
	t.removeFromScope(o)
}

func (t *inventory) removeFromScope(o *managedObject) {
	s := o.scope()
	w := t.scopes[s]
	delete(w.members, o.objectID)
	if len(w.members) == 0 {
		delete(t.scopes, s)
		w.stop()
	}
}

// recordApply takes the answer to an apply; got is nil when it failed.
func (t *inventory) recordApply(id objectID, work string, content [32]byte, got *observedObject, by driftPolicy) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	o.isWriting = false
	if got == nil && o.live == o.beforeWrite {
		return r // nothing is new: the next attempt comes from whoever failed
	}
	if got != nil {
		c, before := o.claimOf(work), o.claimOf(o.writer)
		if c != nil && before != nil && before.desired.conflictsWith(c.desired) {
			r.addWork(before.work) // its anchor has to say that it is the last one no more
		}
		o.writer, o.baseline, o.driftPolicy = work, got, by
		if c != nil {
			c.applied, c.hasDrifted = content, false
		}
		o.updateLive(got)
	}
	t.detectDrift(o, &r)
	return r
}

// recordRead takes what a work that does not write the object read of it; got is nil
// when it is not there.
func (t *inventory) recordRead(id objectID, work string, content [32]byte, got *observedObject) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	o.isWriting = false
	if c := o.claimOf(work); c != nil {
		c.applied, c.hasDrifted = content, false
	}
	if got != nil {
		o.updateLive(got)
	} else if o.live == nil {
		o.isKnown = true
	}
	t.detectDrift(o, &r)
	return r
}

// recordOwnerWrite takes the answer to a write of references alone; got is nil when it failed.
func (t *inventory) recordOwnerWrite(id objectID, got *observedObject) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	o.isWriting = false
	if got == nil && o.live == o.beforeWrite {
		return r // nothing is new: the next attempt comes from whoever failed
	}
	if got != nil && o.live != nil && o.live.uid == got.uid && isNewer(got.resourceVersion, o.live.resourceVersion) {
		live := *o.live // its metadata alone was read
		live.resourceVersion, live.owners = got.resourceVersion, got.owners
		o.live = &live
	}
	t.detectDrift(o, &r)
	return r
}

// updateLive brings in what the answer to a request said, unless something later is known.
func (o *managedObject) updateLive(got *observedObject) {
	o.isKnown = true
	if o.live == nil || o.live.uid == o.deletedUID || !isNewer(o.live.resourceVersion, got.resourceVersion) {
		o.live = got
	}
	if o.deletedUID == got.uid {
		o.live = nil
	}
}

// markCreated records that we made the object of that UID, whichever work it was for.
func (t *inventory) markCreated(id objectID, uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, ok := t.objects[id]; ok {
		o.createdUID = uid
	}
}

// isCreated tells whether that is recorded.
func (t *inventory) isCreated(id objectID, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	return ok && uid != "" && o.createdUID == uid
}

// handleEvent takes an event of a watch: what an object is now, or that it is gone; at
// is when it happened, zero when that is not known.
func (t *inventory) handleEvent(id objectID, seen *observedObject, deleted bool, at time.Time, readings ...*reading) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return r
	}
	if deleted {
		if o.live == nil || o.live.uid == seen.uid {
			o.live = seen // as it was last
		}
		t.handleDeletion(o, seen.uid, at, &r)
		return r
	}
	if o.live != nil && o.live.uid == seen.uid && isNewer(o.live.resourceVersion, seen.resourceVersion) {
		return r // older than the answer to our own apply
	}
	if o.live == nil || o.live.uid != seen.uid {
		r.addPassive(o)
	}
	if seen.hasEnded && (o.live == nil || !o.live.hasEnded) {
		r.addWorks(o)
	}
	changed := o.live == nil || !o.isKnown || o.live.health != seen.health || o.live.isDeleting != seen.isDeleting
	o.live, o.isKnown = seen, true
	if o.storeReadings(readings) {
		changed = true
	}
	strayed := t.detectDrift(o, &r)
	if changed || strayed {
		t.noteEvent(o, at)
	}
	if changed && !strayed {
		r.addStatuses(o)
	}
	return r
}

// handleDeletion records that an object is gone. Its works look at once: one of them
// has it back, or waits for exactly this.
func (t *inventory) handleDeletion(o *managedObject, uid types.UID, at time.Time, r *requeue) {
	o.deletedUID, o.isKnown = uid, true
	if o.live != nil && uid != "" && o.live.uid != uid {
		return // another one of the same name is there already
	}
	if o.live != nil {
		o.hadEnded = o.live.hasEnded
	}
	o.live = nil
	t.noteEvent(o, at)
	t.detectDrift(o, r)
	r.addPassive(o)
	r.addWorks(o)
}

// beginResync begins the initial events of a watch, which tell of every member that exists.
func (t *inventory) beginResync(s scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w, ok := t.scopes[s]; ok {
		for _, o := range w.members {
			o.isExpected = true
		}
	}
}

// endResync ends the initial events of a watch, taken at version: what was expected and not
// seen in them, and was not written since, is gone.
func (t *inventory) endResync(s scope, seen map[objectID]struct{}, version string) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.scopes[s]
	if !ok {
		return r
	}
	failed := w.failure != nil
	w.failure = nil
	for id, o := range w.members {
		if failed {
			r.addStatuses(o)
		}
		if _, ok := seen[id]; ok || !o.isExpected || o.isSince(version) {
			continue
		}
		if o.isKnown && o.live == nil {
			continue
		}
		uid := o.deletedUID
		if o.live != nil {
			uid = o.live.uid
		}
		t.handleDeletion(o, uid, time.Time{}, &r)
	}
	return r
}

// recordWatchError records that a scope cannot be watched.
func (t *inventory) recordWatchError(s scope, err error) (r requeue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.scopes[s]
	if !ok || w.failure != nil {
		return r
	}
	w.failure = err
	for _, o := range w.members {
		r.addStatuses(o)
	}
	return r
}

// has tells whether an object is worth decoding.
func (t *inventory) has(id objectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.objects[id]
	return ok
}

// get returns what is known of an object: its state (nil when absent), whether
// that is known at all, and why it cannot be watched.
func (t *inventory) get(id objectID) (live *observedObject, known bool, failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, ok := t.objects[id]
	if !ok {
		return nil, false, nil
	}
	return o.live, o.isKnown, t.scopes[o.scope()].failure
}

// claimOf returns the claim of a work on an object, nil for none; t.mu is held.
func (t *inventory) claimOf(id objectID, work string) *claim {
	o, ok := t.objects[id]
	if !ok {
		return nil
	}
	return o.claimOf(work)
}

func (o *managedObject) claimOf(work string) *claim {
	for i := range o.claims {
		if o.claims[i].work == work {
			return &o.claims[i]
		}
	}
	return nil
}
