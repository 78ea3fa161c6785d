// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// pruneObjects removes tracked objects, wave by wave. What is gone leaves the anchor's
// list; what is still going stays on it, and its last event brings us back.
func (e *Engine) pruneObjects(ctx context.Context, w *work, list []record.Object) error {
	for _, wave := range plan.DeletionWaves(list) {
		var failed error
		pending := false
		for _, t := range wave {
			if !w.currentSpec().MayWrite() {
				return errSuperseded // it has queued the work
			}
			gone, err := e.removeObject(ctx, w, t)
			if err != nil && failed == nil {
				failed = fmt.Errorf("delete %s: %w", t.ObjectID, err)
			}
			if !gone {
				pending = true
				continue
			}
			delete(w.anchor.Objects, t.ObjectID)
			e.requeue(e.inventory.ReleaseClaim(t.ObjectID, w.key.String()))
		}
		if failed != nil {
			return failed
		}
		if pending {
			return e.checkWatched(wave)
		}
	}
	return nil
}

// checkWatched fails when the end of something that is going cannot be seen: then
// another attempt has to look.
func (e *Engine) checkWatched(wave []record.Object) error {
	for _, t := range wave {
		if _, _, failure := e.inventory.Get(t.ObjectID); failure != nil {
			return fmt.Errorf("wait for %s to be gone: %w", t.ObjectID, failure)
		}
	}
	return nil
}

// removeObject gives up one object, which goes if we made it and it is ours alone, and tells
// whether it is none of our business any more.
func (e *Engine) removeObject(ctx context.Context, w *work, t record.Object) (gone bool, err error) {
	key, a := w.key.String(), w.anchor
	e.inventory.DropOwnership(t.Target, key, a.UID)
	unlock, err := e.inventory.Lock(ctx, t.ObjectID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if t.UID == "" && !t.IsUncertain && !e.inventory.MayBeOwner(t.ObjectID, key) {
		return true, nil // every apply was refused, so there is nothing of ours
	}
	if d := w.currentSpec(); d != nil && plan.IsOrphaned(d.ManifestWork.DeleteOption, t.Identifier()) {
		return e.detachOrphan(ctx, t.Target, a.UID)
	}
	if gone, done := e.removeByWatch(ctx, w, t); done {
		return gone, nil
	}
	for range removeAttempts {
		if gone, err = e.removeByGet(ctx, w, t); !errors.Is(err, errChanged) {
			return gone, err
		}
	}
	return false, err
}

// removeByGet reads the object, decides, and does so to that version of it: what it
// becomes in between is decided anew. Of works that give it up at the same time the last
// one deletes it.
func (e *Engine) removeByGet(ctx context.Context, w *work, t record.Object) (gone bool, err error) {
	a := w.anchor
	live, err := e.spoke.getMetadata(ctx, t.Target)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch e.ownershipOf(w.policy, live, t, a) {
	case ownershipForeign:
		return true, nil
	case ownershipAdopted:
		return e.detachOrphan(ctx, t.Target, a.UID)
	case ownedAndDeleting:
		return false, nil
	case ownedByWork:
	}
	others := e.inventory.OtherOwners(t.ObjectID, w.key.String())
	shared := len(others) > 0
	if !shared {
		if shared, err = e.hasOtherOwners(ctx, w.policy, live, a.UID); err != nil {
			return false, err
		}
	}
	if shared {
		return e.leaveToOwners(ctx, w, t.Target, live, others)
	}
	err = e.spoke.delete(ctx, t.Target, live.UID, live.ResourceVersion)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err):
		return false, fmt.Errorf("%w: %w", errChanged, err)
	case err != nil:
		return false, err
	}
	after, err := e.spoke.getMetadata(ctx, t.Target)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return after.UID != live.UID, nil
}

// leaveToOwners leaves an object, as it was seen, to the others that own it. One that has yet
// to write its reference has it from now on: between the two nobody would own the object.
func (e *Engine) leaveToOwners(ctx context.Context, w *work, at manifest.Target, live *metav1.PartialObjectMetadata, others []inventory.Owner) (gone bool, err error) {
	refs := withOwners(withoutOwner(live.OwnerReferences, w.anchor.UID), e.ownerReferences(others))
	if slices.Equal(refs, live.OwnerReferences) {
		return true, nil
	}
	_, err = e.spoke.setOwners(ctx, at, live, refs)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if w.policy.KeepsExisting { // then it was not found, or it would have been let go
		e.inventory.MarkCreated(at.ObjectID, live.UID)
		for _, o := range others {
			e.queue.Add(o.Work)
		}
	}
	return true, nil
}

// removeByWatch does the same on what the watch says alone, where that suffices: the
// delete holds for the very version that was seen, and its event ends the wait.
// done is false when somebody has to look closer.
func (e *Engine) removeByWatch(ctx context.Context, w *work, t record.Object) (gone, done bool) {
	live, known, failure := e.inventory.Get(t.ObjectID)
	switch {
	case failure != nil || !known || t.IsAdopted:
		return false, false
	case live == nil:
		return true, true
	case live.UID != t.UID || !slices.Equal(live.Owners, []types.UID{w.anchor.UID}) || len(e.inventory.OtherOwners(t.ObjectID, w.key.String())) > 0:
		return false, false
	case live.IsDeleting:
		return false, true
	}
	err := e.spoke.delete(ctx, t.Target, live.UID, live.ResourceVersion)
	if apierrors.IsNotFound(err) {
		return true, true
	}
	return false, err == nil
}

// ownership says whose an object is that an anchor lists.
type ownership int

const (
	ownedByWork      ownership = iota // to be deleted, or shared
	ownedAndDeleting                  // ours, and being deleted
	ownershipAdopted                  // not made by us: let go
	ownershipForeign                  // not what the anchor listed: left alone
)

// ownershipOf never takes for ours what was not applied for this anchor: the UID is
// the one that was recorded or, where a crash came before the record, the object
// bears the anchor's reference, which the apply itself had set. Nor what was
// applied and not made. Of a policy that does not keep what was found, the object
// bears the reference, or lost it with the anchor that this one replaces.
func (e *Engine) ownershipOf(p Policy, live *metav1.PartialObjectMetadata, t record.Object, a *record.Anchor) ownership {
	switch {
	case !p.KeepsExisting && !hasOwner(live, a.UID) && live.UID != t.DetachedUID:
		return ownershipForeign // orphaned, only read, or another object of that name
	case !p.KeepsExisting && live.DeletionTimestamp != nil:
		return ownedAndDeleting
	case !p.KeepsExisting:
		return ownedByWork
	case (t.UID == "" || live.UID != t.UID) && !hasOwner(live, a.UID):
		return ownershipForeign
	case !e.isCreatedByUs(p, t, live.UID, newObjectOrigin(live, 0), a):
		return ownershipAdopted
	case live.DeletionTimestamp != nil:
		return ownedAndDeleting
	default:
		return ownedByWork
	}
}

func hasOwner(live *metav1.PartialObjectMetadata, anchor types.UID) bool {
	return anchor != "" && slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == anchor })
}

// hasOtherOwners tells whether anybody else owns the object. A reference to an owner that
// is no more does not count: where no garbage collector runs nobody drops it. One
// that cannot be looked at counts.
func (e *Engine) hasOtherOwners(ctx context.Context, p Policy, live *metav1.PartialObjectMetadata, anchor types.UID) (bool, error) {
	for _, o := range live.OwnerReferences {
		// Of a ManifestWork's objects only other works count as owners (work#170).
		if o.UID == anchor || !p.KeepsExisting && !record.IsAnchor(o) {
			continue
		}
		lives, err := e.ownerExists(ctx, o, live.Namespace)
		if lives || err != nil {
			return lives, err
		}
	}
	return false, nil
}

func (e *Engine) ownerExists(ctx context.Context, o metav1.OwnerReference, namespace string) (bool, error) {
	var owner *metav1.PartialObjectMetadata
	at, err := e.ownerTarget(ctx, o, namespace)
	if err == nil {
		owner, err = e.spoke.getMetadata(ctx, at)
	}
	var unserved *manifest.UnknownKindError
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err), errors.As(err, &unserved):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get owner %s %s: %w", o.Kind, o.Name, err)
	}
	return owner.UID == o.UID, nil
}

// ownerTarget is where an owner of an object in a namespace is stored.
func (e *Engine) ownerTarget(ctx context.Context, o metav1.OwnerReference, namespace string) (manifest.Target, error) {
	gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
	at := manifest.Target{ObjectID: manifest.ObjectID{Group: gvk.Group, Name: o.Name}, Version: gvk.Version, Kind: gvk.Kind}
	if record.IsAnchor(o) {
		at.Resource = record.AnchorResource(o).Resource
		return at, nil
	}
	kind, err := e.spoke.kinds.Resolve(ctx, gvk)
	if err != nil {
		return manifest.Target{}, err
	}
	at.Resource = kind.Resource
	if kind.Namespaced {
		at.Namespace = namespace
	}
	return at, nil
}

// removeAttempts bounds how often a reference is removed anew from an object that
// changes in between.
const removeAttempts = 5

// detachOrphan removes the reference to an anchor from an object, which is none of our business
// then.
func (e *Engine) detachOrphan(ctx context.Context, at manifest.Target, anchor types.UID) (gone bool, err error) {
	_, err = e.removeOwnerReference(ctx, at, anchor)
	return err == nil, err
}

// removeOwnerReference removes the reference to an anchor from an object, and nothing
// else. It returns the UID of the object that bore it, empty when none did.
func (e *Engine) removeOwnerReference(ctx context.Context, at manifest.Target, anchor types.UID) (freed types.UID, _ error) {
	var last error
	for range removeAttempts {
		live, err := e.spoke.getMetadata(ctx, at)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("get %s: %w", at.ObjectID, err)
		}
		if !hasOwner(live, anchor) {
			return "", nil
		}
		_, err = e.spoke.setOwners(ctx, at, live, withoutOwner(live.OwnerReferences, anchor))
		if errors.Is(err, errChanged) {
			last = err
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("disown %s: %w", at.ObjectID, err)
		}
		return live.UID, nil
	}
	return "", fmt.Errorf("disown %s: %w", at.ObjectID, last)
}

// finalize collects everything of a work and then says so. The anchor is marked
// first, so that a restart from our own copy does not begin anew.
func (e *Engine) finalize(ctx context.Context, w *work, d *plan.Spec) error {
	if err := e.findAnchorForDeletion(ctx, w, d); err != nil {
		return err
	}
	if err := e.deleteAll(ctx, w); err != nil {
		if errors.Is(err, errSuperseded) {
			return err
		}
		w.recordDeletionProgress(d, err)
		e.publishStatus(w)
		return err
	}
	if w.anchor != nil {
		w.recordDeletionProgress(d, nil)
		if e.hasDeletingObject(w) {
			e.publishStatus(w)
		}
		return nil
	}
	e.specs.Delete(w.key.String())
	// What was said of it, while it was compared for instance, must not be said once more
	// after its end: the hub would wait for that.
	w.reset()
	e.publishFinalized(w, d)
	return nil
}

// findAnchorForDeletion finds the anchor of a work that is to be deleted and that this process has
// never applied: another one of this agent's may have.
func (e *Engine) findAnchorForDeletion(ctx context.Context, w *work, d *plan.Spec) error {
	if w.anchor != nil || w.policy.Dialect != wire.DialectManifestWork || w.anchorSearchedFor == d {
		return nil
	}
	name := d.HubHash + "-" + w.key.Name
	u, err := e.store(w.policy).Client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.anchorSearchedFor = d
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
	}
	w.anchorSearchedFor = d
	if !e.store(w.policy).IsOurs(u, true) {
		return nil // of another hub's work
	}
	_, a, err := record.Decode(w.policy.Anchor, u)
	if err != nil {
		return err
	}
	e.bindAnchor(w.policy, w.key, name, a)
	return nil
}

// hasDeletingObject: something of the work is being deleted and does not go. What goes at once
// is gone before the hub could have been told that it is going; what turns out to
// be held later is reported by its own event.
func (e *Engine) hasDeletingObject(w *work) bool {
	for id := range w.anchor.Objects {
		if live, _, _ := e.inventory.Get(id); live != nil && live.IsDeleting {
			return true
		}
	}
	return false
}

// deleteAll removes what an anchor lists and then the anchor; w.anchor is nil
// when both are gone.
func (e *Engine) deleteAll(ctx context.Context, w *work) error {
	a := w.anchor
	if a == nil {
		return nil
	}
	if a.UID == "" && a.IsUncertain {
		if err := e.findLostAnchor(ctx, w, a); err != nil {
			return err
		}
	}
	if a.UID != "" && !a.IsDeleting {
		if err := e.store(w.policy).Delete(ctx, w.recordKey(), a); err != nil && !errors.Is(err, record.ErrLost) {
			return err
		}
	}
	list := make([]record.Object, 0, len(a.Objects))
	for _, t := range a.Objects {
		list = append(list, t)
	}
	if err := e.pruneObjects(ctx, w, list); err != nil {
		// What cannot be deleted now stays listed for whoever comes after us.
		return errors.Join(err, e.recordRemaining(ctx, w, a))
	}
	if len(a.Objects) > 0 {
		return e.recordRemaining(ctx, w, a)
	}
	if a.UID != "" {
		if err := e.store(w.policy).RemoveFinalizer(ctx, w.recordKey(), a); err != nil {
			return err
		}
	}
	w.anchor = nil
	w.reset()
	return nil
}

// findLostAnchor looks whether an anchor was made of which the answer was lost.
func (e *Engine) findLostAnchor(ctx context.Context, w *work, a *record.Anchor) error {
	u, err := e.store(w.policy).Client.Get(ctx, w.anchorName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !e.store(w.policy).IsOurs(u, false) {
		a.IsUncertain = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
	}
	a.UID, a.IsDeleting, a.IsUncertain = u.GetUID(), u.GetDeletionTimestamp() != nil, false
	return nil
}

// recordRemaining keeps the list of a waiting anchor exact.
func (e *Engine) recordRemaining(ctx context.Context, w *work, a *record.Anchor) error {
	if a.UID == "" {
		return nil
	}
	if err := e.store(w.policy).Update(ctx, w.recordKey(), a); err != nil && !errors.Is(err, record.ErrLost) {
		return err
	}
	return nil
}
