// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// objects are those of the share in the cluster.
func (t *turn) objects() dynamic.ResourceInterface {
	return t.engine.cfg.Objects.Resource(resourceOf(t.spec)).Namespace(t.spec.SpokeNamespace)
}

// writeToSpoke makes a write in the cluster.
func (t *turn) writeToSpoke(ctx context.Context, s step) error {
	if err := t.begin(ctx, s, t.object.spoke, 0); err != nil {
		return err
	}
	t.engine.pace.Spend(t.key, 0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := t.send(ctx, s)
	if err != nil {
		return t.refused(s, err)
	}
	return t.wrote(ctx, s, got)
}

// wrote notes what a write in the cluster has left.
func (t *turn) wrote(ctx context.Context, s step, got *unstructured.Unstructured) error {
	t.share.spokeHas(ctx, got, false)
	left := sharedobject.Of(got)
	next, err := s.settle(t.schema, left)
	if err != nil {
		return err
	}
	t.object.resourceVersion = got.GetResourceVersion()
	spoke := t.object.spoke
	spoke.uid = got.GetUID()
	t.engine.queue.Add(t.key)
	return t.settle(s, next, t.object.hub, spoke)
}

// send makes the request of a write in the cluster.
func (t *turn) send(ctx context.Context, s step) (*unstructured.Unstructured, error) {
	if s.from == nil {
		obj := s.to.Object(t.spec.Group+"/"+t.spec.Version, t.spec.Kind, t.spec.SpokeNamespace, t.key.Name)
		return t.objects().Create(ctx, obj, metav1.CreateOptions{FieldManager: fieldManager})
	}
	target := sharedobject.Target{ResourceVersion: t.object.resourceVersion, Annotated: t.object.annotated, Subresource: t.spokeStatus}
	patch, subresources := target.Patch, []string(nil)
	if s.part == wire.PartStatus {
		patch, subresources = target.StatusPatch, []string{"status"}
	}
	raw, err := patch(s.from, s.to)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	if raw == nil { // it differs in nothing that is stored
		return t.objects().Get(ctx, t.key.Name, metav1.GetOptions{})
	}
	return t.objects().Patch(ctx, t.key.Name, types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
}

// refused notes that a write in the cluster failed. What may have been done is looked up
// before anything else.
func (t *turn) refused(s step, err error) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		t.update(func(o *object) { o.stale = true })
		return errors.Join(t.revoke(), fmt.Errorf("%w: %w", errBehind, err))
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && s.from != nil:
		return errors.Join(t.revoke(), fmt.Errorf("%w: %w", errBehind, err))
	case uncertain(err):
		t.update(func(o *object) { o.stale = true })
		return err
	}
	t.refuse(fmt.Sprintf("cluster: object %q: %v", t.key.Name, err))
	return t.revoke()
}

// uncertain tells errors after which a request may have been done.
func uncertain(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || code >= http.StatusInternalServerError || code == 0
}

// refresh reads an object of which it is not known whether a request was done.
func (s *share) refresh(ctx context.Context, name string) error {
	s.mu.Lock()
	o, ok := s.objects[name]
	if !ok || !o.stale || !s.acts() {
		s.mu.Unlock()
		return nil
	}
	spec := s.spec
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	obj, err := s.engine.cfg.Objects.Resource(resourceOf(spec)).Namespace(spec.SpokeNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("object %s: %w", name, err)
	}
	if err == nil {
		s.spokeHas(ctx, obj, false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects[name]; ok {
		o.stale = false
	}
	return nil
}

// removeFromSpoke deletes an object in the cluster as it was last seen: finalizers are
// honoured, and what has changed meanwhile is looked at again.
func (t *turn) removeFromSpoke(ctx context.Context, s step) error {
	if t.object.spoke.deleting {
		return nil
	}
	if err := t.beginRemoval(ctx, s); err != nil {
		return err
	}
	t.engine.pace.Spend(t.key, 0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid, version := t.object.spoke.uid, t.object.resourceVersion
	err := t.objects().Delete(ctx, t.key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	switch {
	case err == nil:
		t.update(func(o *object) { o.spoke.deleting = o.spoke.deleting || o.spoke.uid == uid })
		t.fail("")
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", errBehind, err)
	}
	if uncertain(err) {
		t.fail(fmt.Sprintf("cluster: object %q cannot be deleted: %v", t.key.Name, err))
		return err
	}
	t.refuse(fmt.Sprintf("cluster: object %q cannot be deleted: %v", t.key.Name, err))
	return nil
}

// removeFromHub asks the hub to delete an object, if its deletion in the cluster was
// meant.
func (t *turn) removeFromHub(ctx context.Context, s step) error {
	if t.object.hub.deleting {
		return nil
	}
	if !t.object.spoke.present {
		problem, err := t.share.proof.check(ctx, t.share, t.spec, t.object.gone)
		if err != nil {
			return err
		}
		if problem != nil {
			t.share.suspend(ctx, problem)
			return nil
		}
	}
	if err := t.beginRemoval(ctx, s); err != nil {
		return err
	}
	return t.ask(s, t.engine.nextGeneration(), wire.SharedWrite{Part: wire.PartDeletion, Seen: t.object.hub.version})
}

// writeToHub asks the hub for a write.
func (t *turn) writeToHub(ctx context.Context, s step) error {
	if !t.engine.takePlace(t.key) {
		return nil
	}
	generation := t.engine.nextGeneration()
	if len(s.raw) > wire.MaxSharedContent {
		t.engine.leavePlace(t.key)
		t.share.unreserve(t.key.Name)
		t.fail(fmt.Sprintf("object %q is too large to be shared: %d bytes, limit is %d", t.key.Name, len(s.raw), wire.MaxSharedContent))
		return nil
	}
	if err := t.begin(ctx, s, t.object.hub, generation); err != nil {
		t.engine.leavePlace(t.key)
		return err
	}
	w := wire.SharedWrite{Part: s.part, Content: s.raw}
	if s.from != nil {
		w.Seen = t.object.hub.version
	}
	s.raw = nil // the write has it
	return t.ask(s, generation, w)
}

// ask publishes a write of the hub.
func (t *turn) ask(s step, generation int64, w wire.SharedWrite) error {
	if !t.engine.takePlace(t.key) {
		return nil
	}
	body, err := json.Marshal(w)
	if err != nil {
		t.engine.leavePlace(t.key)
		return fmt.Errorf("encode write: %w", err)
	}
	t.engine.pace.Spend(t.key, len(body))
	t.update(func(o *object) { o.asked = &asked{generation: generation, seen: w.Seen, fence: t.spec.Fence, step: s} })
	uid := ""
	if w.Seen != "" {
		uid = string(t.object.hub.uid)
	}
	if err := t.engine.writes.Put(resource.Resource{Key: t.key.String(), UID: uid, Generation: generation, Body: body}); err != nil {
		t.update(func(o *object) { o.asked = nil })
		t.engine.leavePlace(t.key)
		return err
	}
	return nil
}

// conclude finds out what became of the last write; it waits while the hub has not said.
func (t *turn) conclude(ctx context.Context) (waits bool, err error) {
	if a := t.object.asked; a != nil && t.object.unanswered() {
		return true, nil
	} else if a != nil {
		defer t.withdraw()
		if t.object.answer.refused == a.generation {
			return true, t.refusedByHub()
		}
	}
	if t.record == nil || t.record.Pending == nil {
		return false, nil
	}
	if t.record.Pending.Part == wire.PartDeletion {
		return false, t.concludeRemoval()
	}
	if t.record.Pending.Side == wire.SharedSpoke {
		if t.underWay() {
			return true, t.sendAgain(ctx)
		}
		return false, t.concludeSpoke()
	}
	if p := t.record.Pending; t.object.asked == nil && t.object.hub.version == p.Prior && t.object.answer.applied != p.Generation {
		return true, t.askAgain()
	}
	return false, t.concludeHub()
}

// askAgain asks the hub for the very write that the process before has asked for, which
// it may be making.
func (t *turn) askAgain() error {
	p := t.record.Pending
	s, err := t.begun()
	if err != nil {
		return err
	}
	return t.ask(s, p.Generation, wire.SharedWrite{Part: p.Part, Seen: p.Prior, Content: p.content()})
}

// begun is the step of a write that was begun.
func (t *turn) begun() (step, error) {
	p := t.record.Pending
	s := step{do: write, side: sideOf(p.Side), part: p.Part, follows: !t.both(), conflicts: p.Conflicts}
	var err error
	if s.next, err = p.Next.decode(); err == nil {
		s.to, err = sharedobject.Decode(p.content())
	}
	return s, err
}

// underWay tells whether the request of a write in the cluster may still be executed: the
// object is as it was when that was made.
func (t *turn) underWay() bool {
	p, spoke := t.record.Pending, t.object.spoke
	if p.Prior == "" {
		return !spoke.present
	}
	return spoke.present && spoke.version == p.Prior && t.object.resourceVersion == t.record.SpokeVersion
}

// sendAgain makes a write in the cluster once more, whatever was changed meanwhile: the
// first request may yet be executed, and of the two one is.
func (t *turn) sendAgain(ctx context.Context) error {
	s, err := t.begun()
	if err != nil {
		return err
	}
	if t.record.Pending.Prior != "" {
		if s.from, err = sharedobject.Decode(t.object.spoke.raw); err != nil {
			return err
		}
	}
	t.engine.pace.Spend(t.key, 0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := t.send(ctx, s)
	switch {
	case err == nil:
		return t.wrote(ctx, s, got)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err) && s.from != nil:
		t.update(func(o *object) { o.stale = true })
		return fmt.Errorf("%w: %w", errBehind, err)
	default:
		return t.refused(s, err)
	}
}

// unanswered tells whether the hub has yet to answer the write that it was asked for: it
// has the object as it was then.
func (o *object) unanswered() bool {
	a, version := o.asked, o.hub.version
	return o.answer.applied != a.generation && o.answer.refused != a.generation && version == a.seen && (a.step.do != remove || !o.hub.deleting)
}

// withdraw ends what was asked of the hub.
func (t *turn) withdraw() {
	t.update(func(o *object) { o.asked = nil })
	t.engine.leavePlace(t.key)
}

// refusedByHub notes that the hub has refused a write, which is tried again later.
func (t *turn) refusedByHub() error {
	t.refuse(fmt.Sprintf("object %q: %s", t.key.Name, t.object.answer.reason))
	if t.record != nil && t.record.Pending != nil {
		return t.revoke()
	}
	return nil
}

// concludeRemoval tells of a deletion that has decided a conflict, once that is done. One
// that is not is decided anew.
func (t *turn) concludeRemoval() error {
	p := t.record.Pending
	if t.gone(sideOf(p.Side)) {
		t.share.tellDecided(t.key.Name, t.spec, p.Conflicts, other(sideOf(p.Side)), t.record.SpokeUID)
	}
	return t.revoke()
}

// concludeHub settles a write of the hub that was begun.
func (t *turn) concludeHub() error {
	p, a := t.record.Pending, t.object.asked
	applied := t.object.answer.applied == p.Generation
	switch {
	case applied || t.object.hub.version == p.Wrote:
		return t.done(t.object.hub.uid, t.record.SpokeUID)
	case a != nil && a.fence == t.spec.Fence:
		return t.revoke()
	default:
		return t.doubt(t.object.hub.uid, t.record.SpokeUID)
	}
}

// concludeSpoke settles a write in the cluster whose outcome got lost. If the object has
// the content that it had before, in another version, the write may have been undone.
func (t *turn) concludeSpoke() error {
	p := t.record.Pending
	switch {
	case t.object.spoke.present && t.object.spoke.version == p.Wrote:
		return t.done(t.record.HubUID, t.object.spoke.uid)
	case !t.object.spoke.present:
		return t.revoke()
	default:
		return t.doubt(t.record.HubUID, t.object.spoke.uid)
	}
}

// done records that a write was made.
func (t *turn) done(hub, spoke types.UID) error {
	p, a := t.record.Pending, t.object.asked
	next := p.Next
	if a != nil && a.generation == p.Generation {
		left, err := t.left(a.step)
		if err != nil {
			return err
		}
		if next, err = newStates(left); err != nil {
			return err
		}
	}
	t.share.tellDecided(t.key.Name, t.spec, p.Conflicts, t.winner, spoke)
	r := &record{HubUID: hub, SpokeUID: spoke, HubNumber: t.object.number, SpokeVersion: t.object.resourceVersion, Base: next}
	_, err := t.put(r, false)
	t.inStep()
	return err
}

// left is what is in step after a write that the hub has made.
func (t *turn) left(s step) (merge.States, error) {
	if len(t.object.answer.result) == 0 {
		return s.next, nil
	}
	got, err := sharedobject.Decode(t.object.answer.result)
	if err != nil {
		return merge.States{}, err
	}
	return s.settle(t.schema, got)
}

// doubt has the next step reckon with both outcomes. What the write decided is told: it
// may stay so without being another conflict.
//
// If it was a creation the object may be somebody else's, and if there was a doubt before
// there are more than two outcomes: then what both sides have and is not the same is a
// conflict, as if there had been nothing.
func (t *turn) doubt(hub, spoke types.UID) error {
	r := *t.record
	if r.Pending.Prior == "" || r.Doubt != nil {
		r.Base = states{Hub: json.RawMessage("{}")}
	}
	if r.Pending.Prior == "" {
		r.HubUID, r.SpokeUID = hub, spoke
	}
	t.share.tellDecided(t.key.Name, t.spec, r.Pending.Conflicts, t.winner, r.SpokeUID)
	r.Doubt, r.Pending = &doubt{Side: r.Pending.Side, Next: r.Pending.Next}, nil
	if _, err := t.put(&r, false); err != nil {
		return err
	}
	return t.reckon()
}
