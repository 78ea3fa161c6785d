// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// resolvePending finds out what became of the last write; it waits while the hub has not said.
func (t *reconciliation) resolvePending(ctx context.Context) (waits bool, err error) {
	if a := t.object.hubWrite; a != nil && t.object.awaitsAnswer() {
		return true, nil
	} else if a != nil {
		defer t.withdrawWrite()
		if t.object.answer.refused == a.generation {
			return true, t.handleHubRefusal()
		}
	}
	if t.record == nil || t.record.Pending == nil {
		return false, nil
	}
	if t.record.Pending.Part == wire.PartDeletion {
		return false, t.resolveDeletion()
	}
	if t.record.Pending.Side == wire.SharedSpoke {
		if t.isInFlight() {
			return true, t.retrySpokeWrite(ctx)
		}
		return false, t.resolveSpokeWrite()
	}
	if p := t.record.Pending; t.object.hubWrite == nil && t.object.hub.version == p.Prior && t.object.answer.applied != p.Generation {
		return true, t.republishWrite()
	}
	return false, t.resolveHubWrite()
}

// republishWrite asks the hub for the very write that the process before has asked for, which
// it may be making.
func (t *reconciliation) republishWrite() error {
	p := t.record.Pending
	s, err := t.decodePending()
	if err != nil {
		return err
	}
	return t.publishWrite(s, p.Generation, wire.SharedWrite{Part: p.Part, Seen: p.Prior, Content: p.requestedContent()})
}

// decodePending is the step of a write that was begun.
func (t *reconciliation) decodePending() (step, error) {
	p := t.record.Pending
	s := step{action: writeObject, side: sideOf(p.Side), part: p.Part, isOneWay: !t.isBothWays(), conflicts: p.Conflicts}
	var err error
	if s.next, err = p.Next.decode(); err == nil {
		s.to, err = sharedobject.Decode(p.requestedContent())
	}
	return s, err
}

// isInFlight tells whether the request of a write in the cluster may still be executed: the
// object is as it was when that was made.
func (t *reconciliation) isInFlight() bool {
	p, spoke := t.record.Pending, t.object.spoke
	if p.Prior == "" {
		return !spoke.present
	}
	return spoke.present && spoke.version == p.Prior && t.object.resourceVersion == t.record.SpokeVersion
}

// retrySpokeWrite makes a write in the cluster once more, whatever was changed meanwhile: the
// first request may yet be executed, and of the two one is.
func (t *reconciliation) retrySpokeWrite(ctx context.Context) error {
	s, err := t.decodePending()
	if err != nil {
		return err
	}
	if t.record.Pending.Prior != "" {
		if s.from, err = sharedobject.Decode(t.object.spoke.raw); err != nil {
			return err
		}
	}
	t.engine.limiter.Spend(t.key, 0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := t.sendSpokeWrite(ctx, s)
	switch {
	case err == nil:
		return t.recordSpokeWrite(ctx, s, got)
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err) && s.from != nil:
		t.updateObject(func(o *object) { o.stale = true })
		return fmt.Errorf("%w: %w", errOutdated, err)
	default:
		return t.handleSpokeError(s, err)
	}
}

// awaitsAnswer tells whether the hub has yet to answer the write that it was asked for: it
// has the object as it was then.
func (o *object) awaitsAnswer() bool {
	a, version := o.hubWrite, o.hub.version
	return o.answer.applied != a.generation && o.answer.refused != a.generation && version == a.seenVersion && (a.step.action != deleteObject || !o.hub.deleting)
}

// withdrawWrite ends what was asked of the hub.
func (t *reconciliation) withdrawWrite() {
	t.updateObject(func(o *object) { o.hubWrite = nil })
	t.engine.releaseWriteSlot(t.key)
}

// handleHubRefusal notes that the hub has refused a write, which is tried again later.
func (t *reconciliation) handleHubRefusal() error {
	t.backOff(fmt.Sprintf("object %q: %s", t.key.Name, t.object.answer.reason))
	if t.record != nil && t.record.Pending != nil {
		return t.clearPendingWrite()
	}
	return nil
}

// resolveDeletion tells of a deletion that has decided a conflict, once that is done. One
// that is not is decided anew.
func (t *reconciliation) resolveDeletion() error {
	p := t.record.Pending
	if t.isGone(sideOf(p.Side)) {
		t.share.reportDecision(t.key.Name, t.spec, p.Conflicts, otherSide(sideOf(p.Side)), t.record.SpokeUID)
	}
	return t.clearPendingWrite()
}

// resolveHubWrite settles a write of the hub that was begun.
func (t *reconciliation) resolveHubWrite() error {
	p, a := t.record.Pending, t.object.hubWrite
	applied := t.object.answer.applied == p.Generation
	switch {
	case applied || t.object.hub.version == p.Wrote:
		return t.recordWritten(t.object.hub.uid, t.record.SpokeUID)
	case a != nil && a.fence == t.spec.Fence:
		return t.clearPendingWrite()
	default:
		return t.recordUncertain(t.object.hub.uid, t.record.SpokeUID)
	}
}

// resolveSpokeWrite settles a write in the cluster whose outcome got lost. If the object has
// the content that it had before, in another version, the write may have been undone.
func (t *reconciliation) resolveSpokeWrite() error {
	p := t.record.Pending
	switch {
	case t.object.spoke.present && t.object.spoke.version == p.Wrote:
		return t.recordWritten(t.record.HubUID, t.object.spoke.uid)
	case !t.object.spoke.present:
		return t.clearPendingWrite()
	default:
		return t.recordUncertain(t.record.HubUID, t.object.spoke.uid)
	}
}

// recordWritten records that a write was made.
func (t *reconciliation) recordWritten(hub, spoke types.UID) error {
	p, a := t.record.Pending, t.object.hubWrite
	next := p.Next
	if a != nil && a.generation == p.Generation {
		left, err := t.statesLeft(a.step)
		if err != nil {
			return err
		}
		if next, err = encodeStates(left); err != nil {
			return err
		}
	}
	t.share.reportDecision(t.key.Name, t.spec, p.Conflicts, t.winner, spoke)
	r := &record{HubUID: hub, SpokeUID: spoke, HubNumber: t.object.hubNumber, SpokeVersion: t.object.resourceVersion, Base: next}
	_, err := t.putRecord(r, false)
	t.markInSync()
	return err
}

// statesLeft is what is in step after a write that the hub has made.
func (t *reconciliation) statesLeft(s step) (merge.States, error) {
	if len(t.object.answer.result) == 0 {
		return s.next, nil
	}
	got, err := sharedobject.Decode(t.object.answer.result)
	if err != nil {
		return merge.States{}, err
	}
	return s.statesAfter(t.schema, got)
}

// recordUncertain has the next step reckon with both outcomes. What the write decided is told: it
// may stay so without being another conflict.
//
// If it was a creation the object may be somebody else's, and if there was a doubt before
// there are more than two outcomes: then what both sides have and is not the same is a
// conflict, as if there had been nothing.
func (t *reconciliation) recordUncertain(hub, spoke types.UID) error {
	r := *t.record
	if r.Pending.Prior == "" || r.Uncertain != nil {
		r.Base = encodedStates{Hub: json.RawMessage("{}")}
	}
	if r.Pending.Prior == "" {
		r.HubUID, r.SpokeUID = hub, spoke
	}
	t.share.reportDecision(t.key.Name, t.spec, r.Pending.Conflicts, t.winner, r.SpokeUID)
	r.Uncertain, r.Pending = &uncertainWrite{Side: r.Pending.Side, Next: r.Pending.Next}, nil
	if _, err := t.putRecord(&r, false); err != nil {
		return err
	}
	return t.applyUncertainty()
}
