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

	"github.com/spokelet/spokelet/api/wire"
)

// collect removes tracked objects, wave by wave. What is gone leaves the anchor's
// list; what is still going stays on it, and its last event brings us back.
func (e *Engine) collect(ctx context.Context, w *work, list []tracked) error {
	for _, wave := range waves(list) {
		var failed error
		pending := false
		for _, t := range wave {
			if !w.wanted().writes() {
				return errSuperseded // it has queued the work
			}
			gone, err := e.remove(ctx, w, t)
			if err != nil && failed == nil {
				failed = fmt.Errorf("delete %s: %w", t.objectID, err)
			}
			if !gone {
				pending = true
				continue
			}
			delete(w.anchor.tracked, t.objectID)
			e.table.release(t.objectID, w.key.String())
		}
		if failed != nil {
			return failed
		}
		if pending {
			return e.unseen(wave)
		}
	}
	return nil
}

// unseen fails when the end of something that is going cannot be seen: then
// another attempt has to look.
func (e *Engine) unseen(wave []tracked) error {
	for _, t := range wave {
		if _, _, failure := e.table.look(t.objectID); failure != nil {
			return fmt.Errorf("wait for %s to be gone: %w", t.objectID, failure)
		}
	}
	return nil
}

// remove gives up one object, which goes if we made it and it is ours alone, and tells
// whether it is none of our business any more.
func (e *Engine) remove(ctx context.Context, w *work, t tracked) (gone bool, err error) {
	key, a := w.key.String(), w.anchor
	e.table.waive(t.target, key, a.uid)
	unlock, err := e.table.lock(ctx, t.objectID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if t.uid == "" && !t.unsure && !e.table.named(t.objectID, key) {
		return true, nil // every apply was refused, so there is nothing of ours
	}
	if d := w.wanted(); d != nil && orphans(d.spec.DeleteOption, t.identifier()) {
		return e.letGo(ctx, t.target, a.uid)
	}
	if gone, done := e.removeSeen(ctx, w, t); done {
		return gone, nil
	}
	for range removeAttempts {
		if gone, err = e.removeRead(ctx, w, t); !errors.Is(err, errChanged) {
			return gone, err
		}
	}
	return false, err
}

// removeRead reads the object, decides, and does so to that version of it: what it
// becomes in between is decided anew. Of works that give it up at the same time the last
// one deletes it.
func (e *Engine) removeRead(ctx context.Context, w *work, t tracked) (gone bool, err error) {
	a := w.anchor
	live, err := e.spoke.get(ctx, t.target)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch e.verdict(w.policy, live, t, a) {
	case foreign:
		return true, nil
	case adopted:
		return e.letGo(ctx, t.target, a.uid)
	case going:
		return false, nil
	case ours:
	}
	others := e.table.otherOwners(t.objectID, w.key.String())
	shared := len(others) > 0
	if !shared {
		if shared, err = e.shared(ctx, w.policy, live, a.uid); err != nil {
			return false, err
		}
	}
	if shared {
		return e.handOver(ctx, w, t.target, live, others)
	}
	err = e.spoke.delete(ctx, t.target, live.UID, live.ResourceVersion)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err):
		return false, fmt.Errorf("%w: %w", errChanged, err)
	case err != nil:
		return false, err
	}
	after, err := e.spoke.get(ctx, t.target)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return after.UID != live.UID, nil
}

// handOver leaves an object, as it was seen, to the others that own it. One that has yet
// to write its reference has it from now on: between the two nobody would own the object.
func (e *Engine) handOver(ctx context.Context, w *work, at target, live *metav1.PartialObjectMetadata, others []owner) (gone bool, err error) {
	refs := merged(without(live.OwnerReferences, w.anchor.uid), e.references(others))
	if slices.Equal(refs, live.OwnerReferences) {
		return true, nil
	}
	_, err = e.spoke.setOwners(ctx, at, live, refs)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if w.policy.KeepsFound { // then it was not found, or it would have been let go
		e.table.vouch(at.objectID, live.UID)
		for _, o := range others {
			e.queue.Add(o.work)
		}
	}
	return true, nil
}

// removeSeen does the same on what the watch says alone, where that suffices: the
// delete holds for the very version that was seen, and its event ends the wait.
// done is false when somebody has to look closer.
func (e *Engine) removeSeen(ctx context.Context, w *work, t tracked) (gone, done bool) {
	live, known, failure := e.table.look(t.objectID)
	switch {
	case failure != nil || !known || t.adopted:
		return false, false
	case live == nil:
		return true, true
	case live.uid != t.uid || !slices.Equal(live.owners, []types.UID{w.anchor.uid}) || len(e.table.otherOwners(t.objectID, w.key.String())) > 0:
		return false, false
	case live.deleting:
		return false, true
	}
	err := e.spoke.delete(ctx, t.target, live.uid, live.version)
	if apierrors.IsNotFound(err) {
		return true, true
	}
	return false, err == nil
}

// owned says whose an object is that an anchor lists.
type owned int

const (
	ours    owned = iota // to be deleted, or shared
	going                // ours, and being deleted
	adopted              // not made by us: let go
	foreign              // not what the anchor listed: left alone
)

// verdict never takes for ours what was not applied for this anchor: the UID is
// the one that was recorded or, where a crash came before the record, the object
// bears the anchor's reference, which the apply itself had set. Nor what was
// applied and not made. Of a policy that does not keep what was found, the object
// bears the reference, or lost it with the anchor that this one replaces.
func (e *Engine) verdict(p Policy, live *metav1.PartialObjectMetadata, t tracked, a *anchor) owned {
	switch {
	case !p.KeepsFound && !refersTo(live, a.uid) && live.UID != t.freed:
		return foreign // orphaned, only read, or another object of that name
	case !p.KeepsFound && live.DeletionTimestamp != nil:
		return going
	case !p.KeepsFound:
		return ours
	case (t.uid == "" || live.UID != t.uid) && !refersTo(live, a.uid):
		return foreign
	case !e.made(p, t, live.UID, originOf(live, 0), a):
		return adopted
	case live.DeletionTimestamp != nil:
		return going
	default:
		return ours
	}
}

func refersTo(live *metav1.PartialObjectMetadata, anchor types.UID) bool {
	return anchor != "" && slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == anchor })
}

// shared tells whether anybody else owns the object. A reference to an owner that
// is no more does not count: where no garbage collector runs nobody drops it. One
// that cannot be looked at counts.
func (e *Engine) shared(ctx context.Context, p Policy, live *metav1.PartialObjectMetadata, anchor types.UID) (bool, error) {
	for _, o := range live.OwnerReferences {
		// Of a ManifestWork's objects only other works count as owners (work#170).
		if o.UID == anchor || !p.KeepsFound && !isAnchor(o) {
			continue
		}
		lives, err := e.ownerLives(ctx, o, live.Namespace)
		if lives || err != nil {
			return lives, err
		}
	}
	return false, nil
}

func (e *Engine) ownerLives(ctx context.Context, o metav1.OwnerReference, namespace string) (bool, error) {
	var owner *metav1.PartialObjectMetadata
	at, err := e.ownerAt(ctx, o, namespace)
	if err == nil {
		owner, err = e.spoke.get(ctx, at)
	}
	var unserved *UnknownKindError
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

// ownerAt is where an owner of an object in a namespace is stored.
func (e *Engine) ownerAt(ctx context.Context, o metav1.OwnerReference, namespace string) (target, error) {
	gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
	at := target{objectID: objectID{Group: gvk.Group, Name: o.Name}, Version: gvk.Version, Kind: gvk.Kind}
	if isAnchor(o) {
		at.Resource = anchorResource(o).Resource
		return at, nil
	}
	kind, err := e.spoke.kinds.resolve(ctx, gvk)
	if err != nil {
		return target{}, err
	}
	at.Resource = kind.resource
	if kind.namespaced {
		at.Namespace = namespace
	}
	return at, nil
}

// removeAttempts bounds how often a reference is removed anew from an object that
// changes in between.
const removeAttempts = 5

// letGo removes the reference to an anchor from an object, which is none of our business
// then.
func (e *Engine) letGo(ctx context.Context, at target, anchor types.UID) (gone bool, err error) {
	_, err = e.removeOwnerReference(ctx, at, anchor)
	return err == nil, err
}

// removeOwnerReference removes the reference to an anchor from an object, and nothing
// else. It returns the UID of the object that bore it, empty when none did.
func (e *Engine) removeOwnerReference(ctx context.Context, at target, anchor types.UID) (freed types.UID, _ error) {
	var last error
	for range removeAttempts {
		live, err := e.spoke.get(ctx, at)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("get %s: %w", at.objectID, err)
		}
		if !refersTo(live, anchor) {
			return "", nil
		}
		_, err = e.spoke.setOwners(ctx, at, live, without(live.OwnerReferences, anchor))
		if errors.Is(err, errChanged) {
			last = err
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("disown %s: %w", at.objectID, err)
		}
		return live.UID, nil
	}
	return "", fmt.Errorf("disown %s: %w", at.objectID, last)
}

// finalize collects everything of a work and then says so. The anchor is marked
// first, so that a restart from our own copy does not begin anew.
func (e *Engine) finalize(ctx context.Context, w *work, d *desired) error {
	if err := e.seek(ctx, w, d); err != nil {
		return err
	}
	if err := e.dismantle(ctx, w); err != nil {
		if errors.Is(err, errSuperseded) {
			return err
		}
		w.hinder(d, err)
		e.publish(w)
		return err
	}
	if w.anchor != nil {
		w.hinder(d, nil)
		if e.held(w) {
			e.publish(w)
		}
		return nil
	}
	e.copy.forget(w.key.String())
	// What was said of it, while it was compared for instance, must not be said once more
	// after its end: the hub would wait for that.
	w.clear()
	e.announceFinalized(w, d)
	return nil
}

// seek finds the anchor of a work that is to be deleted and that this process has
// never applied: another one of this agent's may have.
func (e *Engine) seek(ctx context.Context, w *work, d *desired) error {
	if w.anchor != nil || w.policy.Dialect != wire.DialectManifestWork || w.sought == d {
		return nil
	}
	name := d.hubHash + "-" + w.key.Name
	u, err := e.spoke.anchors(w.policy).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.sought = d
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
	}
	w.sought = d
	if !w.policy.Anchor.form.ours(e, u, true) {
		return nil // of another hub's work
	}
	_, a, err := readAnchor(w.policy, u)
	if err != nil {
		return err
	}
	e.rebind(w.policy, w.key, name, a)
	return nil
}

// held: something of the work is being deleted and does not go. What goes at once
// is gone before the hub could have been told that it is going; what turns out to
// be held later is reported by its own event.
func (e *Engine) held(w *work) bool {
	for id := range w.anchor.tracked {
		if live, _, _ := e.table.look(id); live != nil && live.deleting {
			return true
		}
	}
	return false
}

// dismantle removes what an anchor lists and then the anchor; w.anchor is nil
// when both are gone.
func (e *Engine) dismantle(ctx context.Context, w *work) error {
	a := w.anchor
	if a == nil {
		return nil
	}
	if a.uid == "" && a.unsure {
		if err := e.findAnchor(ctx, w, a); err != nil {
			return err
		}
	}
	if a.uid != "" && !a.deleting {
		if err := e.deleteAnchor(ctx, w, a); err != nil && !errors.Is(err, errAnchorLost) {
			return err
		}
	}
	list := make([]tracked, 0, len(a.tracked))
	for _, t := range a.tracked {
		list = append(list, t)
	}
	if err := e.collect(ctx, w, list); err != nil {
		// What cannot be deleted now stays listed for whoever comes after us.
		return errors.Join(err, e.recordGoing(ctx, w, a))
	}
	if len(a.tracked) > 0 {
		return e.recordGoing(ctx, w, a)
	}
	if a.uid != "" {
		if err := e.dropAnchor(ctx, w, a); err != nil {
			return err
		}
	}
	w.anchor = nil
	w.clear()
	return nil
}

// findAnchor looks whether an anchor was made of which the answer was lost.
func (e *Engine) findAnchor(ctx context.Context, w *work, a *anchor) error {
	u, err := e.spoke.anchors(w.policy).Get(ctx, w.anchorName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !w.policy.Anchor.form.ours(e, u, false) {
		a.unsure = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", w.policy.Anchor.Kind, err)
	}
	a.uid, a.deleting, a.unsure = u.GetUID(), u.GetDeletionTimestamp() != nil, false
	return nil
}

// recordGoing keeps the list of a waiting anchor exact.
func (e *Engine) recordGoing(ctx context.Context, w *work, a *anchor) error {
	if a.uid == "" {
		return nil
	}
	if err := e.recordAnchor(ctx, w, a); err != nil && !errors.Is(err, errAnchorLost) {
		return err
	}
	return nil
}
