// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// Inventory holds every object that a work has something to do with, and nothing
// else of the cluster. It is a pure state machine: watches and executors record in it
// what they saw and did, and are told which works that concerns.
type Inventory struct {
	// follow starts the watch of a scope and returns what stops it.
	follow func(Scope) (stop func())

	mu      sync.Mutex
	objects map[manifest.ObjectID]*managedObject
	scopes  map[Scope]*watchedScope
	// firstEvents holds, by work, when the first event came that its status has yet to
	// tell of.
	firstEvents map[string]time.Time
}

// watchedScope is a scope with at least one object in it.
type watchedScope struct {
	members map[manifest.ObjectID]*managedObject
	stop    func()
	// failure is why the scope cannot be watched, nil while it can.
	failure error
}

// managedObject is what is known of one object. Its fields are guarded by table.mu.
type managedObject struct {
	manifest.Target
	claims []claim
	// writer is the work whose content was applied last: where two works share
	// an object the last one wins, once, instead of both writing in turn.
	writer string
	// baseline is the object as our last apply left it, nil before the first.
	baseline *ObservedObject
	// live is the object as it was last seen; nil means absent once known is set.
	live    *ObservedObject
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
	beforeWrite *ObservedObject
	// driftPolicy is what of the object must stay as the baseline has it.
	driftPolicy DriftPolicy
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
	desired DesiredState
	// reading is what intent.reader last read, nil before the first time.
	reading *Reading
}

// DesiredState is what a work wants of an object, besides that it is there.
type DesiredState struct {
	// ContentHash is the hash of the manifest and of how it is written, desire that of
	// the manifest alone.
	ContentHash, ManifestHash [32]byte
	// Manager owns the fields; works with different ones share an object in peace.
	Manager string
	// AppliesServerSide: by server-side apply.
	AppliesServerSide bool
	// IsPassive: the work reads the object, or lets it be once it is there.
	IsPassive bool
	// IsOwner: the work's anchor is an owner of the object.
	IsOwner bool
	Reader  *Reader
}

// New returns an empty inventory. follow starts the watch of a scope and returns what
// stops it; it is called with the inventory locked and must not block.
func New(follow func(Scope) func()) *Inventory {
	return &Inventory{follow: follow, objects: map[manifest.ObjectID]*managedObject{}, scopes: map[Scope]*watchedScope{}, firstEvents: map[string]time.Time{}}
}

// AddClaim registers a work's interest in an object, and watches it from then on.
func (inv *Inventory) AddClaim(at manifest.Target, work string, anchor types.UID) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.ensureClaim(at, work, anchor)
}

// ensureClaim registers a work's interest in an object and returns the object; inv.mu is held.
func (inv *Inventory) ensureClaim(at manifest.Target, work string, anchor types.UID) *managedObject {
	o, ok := inv.objects[at.ObjectID]
	if !ok {
		o = &managedObject{Target: at, writeLock: make(chan struct{}, 1)}
		inv.objects[at.ObjectID] = o
		inv.addToScope(o)
	}
	if c := o.claimOf(work); c != nil {
		if c.anchor != anchor {
			c.anchor, c.applied, c.ownershipDropped, c.mayBeOwner = anchor, [32]byte{}, false, false
		}
		return o
	}
	o.claims = append(o.claims, claim{work: work, anchor: anchor, desired: DesiredState{IsOwner: true}})
	o.sortClaims()
	return o
}

func (o *managedObject) sortClaims() {
	slices.SortFunc(o.claims, func(a, b claim) int { return strings.Compare(a.work, b.work) })
}

// SetDesired says what a work wants of an object that it claims.
func (inv *Inventory) SetDesired(id manifest.ObjectID, work string, want DesiredState) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return r
	}
	c := o.claimOf(work)
	if c == nil {
		return r
	}
	if c.desired.ContentHash != want.ContentHash && len(o.claims) > 1 {
		r.addStatuses(o) // who shares the object may have to say so, or no more
	}
	if c.ownershipDropped && want.IsOwner { // its reference may have gone
		c.applied = [32]byte{}
	}
	c.ownershipDropped = false
	c.desired = want
	if want.Reader == nil {
		c.reading = nil
	}
	inv.updateScope(o)
	return r
}

// updateScope has the object watched with its content if anybody reads it.
func (inv *Inventory) updateScope(o *managedObject) {
	read := slices.ContainsFunc(o.claims, func(c claim) bool { return c.desired.Reader != nil })
	if read == o.needsContent {
		return
	}
	inv.removeFromScope(o)
	o.needsContent = read
	inv.addToScope(o)
}

func (inv *Inventory) addToScope(o *managedObject) {
	s := o.scope()
	w, ok := inv.scopes[s]
	if !ok {
		w = &watchedScope{members: map[manifest.ObjectID]*managedObject{}}
		inv.scopes[s] = w
		w.stop = inv.follow(s)
	}
	o.isExpected = false
	w.members[o.ObjectID] = o
}

func (inv *Inventory) remove(o *managedObject) {
	delete(inv.objects, o.ObjectID)
	inv.removeFromScope(o)
}

func (inv *Inventory) removeFromScope(o *managedObject) {
	s := o.scope()
	w := inv.scopes[s]
	delete(w.members, o.ObjectID)
	if len(w.members) == 0 {
		delete(inv.scopes, s)
		w.stop()
	}
}

// RecordApply takes the answer to an apply; got is nil when it failed.
func (inv *Inventory) RecordApply(id manifest.ObjectID, work string, content [32]byte, got *ObservedObject, by DriftPolicy) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
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
	inv.detectDrift(o, &r)
	return r
}

// RecordRead takes what a work that does not write the object read of it; got is nil
// when it is not there.
func (inv *Inventory) RecordRead(id manifest.ObjectID, work string, content [32]byte, got *ObservedObject) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
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
	inv.detectDrift(o, &r)
	return r
}

// RecordOwnerWrite takes the answer to a write of references alone; got is nil when it failed.
func (inv *Inventory) RecordOwnerWrite(id manifest.ObjectID, got *ObservedObject) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return r
	}
	o.isWriting = false
	if got == nil && o.live == o.beforeWrite {
		return r // nothing is new: the next attempt comes from whoever failed
	}
	if got != nil && o.live != nil && o.live.UID == got.UID && isNewer(got.ResourceVersion, o.live.ResourceVersion) {
		live := *o.live // its metadata alone was read
		live.ResourceVersion, live.Owners = got.ResourceVersion, got.Owners
		o.live = &live
	}
	inv.detectDrift(o, &r)
	return r
}

// updateLive brings in what the answer to a request said, unless something later is known.
func (o *managedObject) updateLive(got *ObservedObject) {
	o.isKnown = true
	if o.live == nil || o.live.UID == o.deletedUID || !isNewer(o.live.ResourceVersion, got.ResourceVersion) {
		o.live = got
	}
	if o.deletedUID == got.UID {
		o.live = nil
	}
}

// MarkCreated records that we made the object of that UID, whichever work it was for.
func (inv *Inventory) MarkCreated(id manifest.ObjectID, uid types.UID) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if o, ok := inv.objects[id]; ok {
		o.createdUID = uid
	}
}

// IsCreated tells whether that is recorded.
func (inv *Inventory) IsCreated(id manifest.ObjectID, uid types.UID) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	return ok && uid != "" && o.createdUID == uid
}

// handleEvent takes an event of a watch: what an object is now, or that it is gone; at
// is when it happened, zero when that is not known.
func (inv *Inventory) handleEvent(id manifest.ObjectID, seen *ObservedObject, deleted bool, at time.Time, readings ...*Reading) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return r
	}
	if deleted {
		if o.live == nil || o.live.UID == seen.UID {
			o.live = seen // as it was last
		}
		inv.handleDeletion(o, seen.UID, at, &r)
		return r
	}
	if o.live != nil && o.live.UID == seen.UID && isNewer(o.live.ResourceVersion, seen.ResourceVersion) {
		return r // older than the answer to our own apply
	}
	if o.live == nil || o.live.UID != seen.UID {
		r.addPassive(o)
	}
	if seen.HasEnded && (o.live == nil || !o.live.HasEnded) {
		r.addWorks(o)
	}
	changed := o.live == nil || !o.isKnown || o.live.Health != seen.Health || o.live.IsDeleting != seen.IsDeleting
	o.live, o.isKnown = seen, true
	if o.storeReadings(readings) {
		changed = true
	}
	strayed := inv.detectDrift(o, &r)
	if changed || strayed {
		inv.noteEvent(o, at)
	}
	if changed && !strayed {
		r.addStatuses(o)
	}
	return r
}

// handleDeletion records that an object is gone. Its works look at once: one of them
// has it back, or waits for exactly this.
func (inv *Inventory) handleDeletion(o *managedObject, uid types.UID, at time.Time, r *Requeue) {
	o.deletedUID, o.isKnown = uid, true
	if o.live != nil && uid != "" && o.live.UID != uid {
		return // another one of the same name is there already
	}
	if o.live != nil {
		o.hadEnded = o.live.HasEnded
	}
	o.live = nil
	inv.noteEvent(o, at)
	inv.detectDrift(o, r)
	r.addPassive(o)
	r.addWorks(o)
}

// beginResync begins the initial events of a watch, which tell of every member that exists.
func (inv *Inventory) beginResync(s Scope) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if w, ok := inv.scopes[s]; ok {
		for _, o := range w.members {
			o.isExpected = true
		}
	}
}

// endResync ends the initial events of a watch, taken at version: what was expected and not
// seen in them, and was not written since, is gone.
func (inv *Inventory) endResync(s Scope, seen map[manifest.ObjectID]struct{}, version string) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	w, ok := inv.scopes[s]
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
			uid = o.live.UID
		}
		inv.handleDeletion(o, uid, time.Time{}, &r)
	}
	return r
}

// recordWatchError records that a scope cannot be watched.
func (inv *Inventory) recordWatchError(s Scope, err error) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	w, ok := inv.scopes[s]
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
func (inv *Inventory) has(id manifest.ObjectID) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	_, ok := inv.objects[id]
	return ok
}

// Get returns what is known of an object: its state (nil when absent), whether
// that is known at all, and why it cannot be watched.
func (inv *Inventory) Get(id manifest.ObjectID) (live *ObservedObject, known bool, failure error) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return nil, false, nil
	}
	return o.live, o.isKnown, inv.scopes[o.scope()].failure
}

// claimOf returns the claim of a work on an object, nil for none; inv.mu is held.
func (inv *Inventory) claimOf(id manifest.ObjectID, work string) *claim {
	o, ok := inv.objects[id]
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

// RecordLookup takes what was read of an object, without a write; got is nil when it is not
// there.
func (inv *Inventory) RecordLookup(id manifest.ObjectID, got *ObservedObject) (r Requeue) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	o, ok := inv.objects[id]
	if !ok {
		return r
	}
	if got != nil {
		o.updateLive(got)
	} else if o.live == nil {
		o.isKnown = true
	}
	inv.detectDrift(o, &r)
	return r
}
