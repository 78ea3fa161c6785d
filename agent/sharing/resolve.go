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

// resolvePending finds out what became of the last write; it waits while the hub has not
// answered.
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

// republishWrite publishes the write of the process before again, which the hub may be making.
func (t *reconciliation) republishWrite() error {
	p := t.record.Pending
	s, err := t.decodePending()
	if err != nil {
		return err
	}
	return t.publishWrite(s, p.Generation, wire.SharedWrite{Part: p.Part, Seen: p.Prior, Content: p.requestedContent()})
}

// decodePending returns the step of the pending write.
func (t *reconciliation) decodePending() (step, error) {
	p := t.record.Pending
	s := step{action: writeObject, side: sideOf(p.Side), part: p.Part, isOneWay: !t.isBothWays(), conflicts: p.Conflicts}
	var err error
	if s.next, err = p.Next.decode(); err == nil {
		s.to, err = sharedobject.Decode(p.requestedContent())
	}
	return s, err
}

// isInFlight reports whether the request of the pending write may still be executed: the
// object has the version that the request was made for.
func (t *reconciliation) isInFlight() bool {
	p, spoke := t.record.Pending, t.object.spoke
	if p.Prior == "" {
		return !spoke.present
	}
	return spoke.present && spoke.version == p.Prior && t.object.resourceVersion == t.record.SpokeVersion
}

// retrySpokeWrite makes the pending write in the cluster once more: the first request may
// still be executed, and only one of the two can be.
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

// awaitsAnswer reports whether the hub has not answered the write yet, and has the object that
// the write was made from.
func (o *object) awaitsAnswer() bool {
	a, version := o.hubWrite, o.hub.version
	return o.answer.applied != a.generation && o.answer.refused != a.generation && version == a.seenVersion && (a.step.action != deleteObject || !o.hub.deleting)
}

// withdrawWrite withdraws the write to the hub.
func (t *reconciliation) withdrawWrite() {
	t.updateObject(func(o *object) { o.hubWrite = nil })
	t.engine.releaseWriteSlot(t.key)
}

// handleHubRefusal records that the hub has refused a write, which is retried later.
func (t *reconciliation) handleHubRefusal() error {
	t.backOff(fmt.Sprintf("object %q: %s", t.key.Name, t.object.answer.reason))
	if t.record != nil && t.record.Pending != nil {
		return t.clearPendingWrite()
	}
	return nil
}

// resolveDeletion reports the conflict that a pending deletion decided, if it is done. One
// that is not is decided again.
func (t *reconciliation) resolveDeletion() error {
	p := t.record.Pending
	in := mergeInput{record: t.record, hub: t.object.hub, spoke: t.object.spoke}
	if side := sideOf(p.Side); in.isGone(side) {
		t.share.reportDecision(t.key.Name, t.spec, p.Conflicts, otherSide(side), t.record.SpokeUID)
	}
	return t.clearPendingWrite()
}

// resolveHubWrite resolves a pending write to the hub.
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

// resolveSpokeWrite resolves a pending write in the cluster whose outcome was lost. If the
// object has its former content in another version, the write may have been undone.
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

// recordWritten records that the pending write was done.
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

// statesLeft returns the contents that are in sync after a write that the hub has made.
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

// recordUncertain has the next step consider both outcomes of the pending write. Conflicts
// that it decided are reported, since they may stay decided without another conflict.
//
// The object of a creation may be somebody else's, and after another uncertain write there are
// more than two outcomes: then every difference is a conflict, as if there were no base.
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
	_, err := t.putRecord(&r, false)
	return err
}
