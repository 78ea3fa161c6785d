// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// execute executes a step. It returns when the object is to be reconciled again; 0 if not.
func (t *reconciliation) execute(ctx context.Context, s step) (time.Duration, error) {
	t.setDifferences(s.fields)
	if s.action != writeObject {
		t.share.release(t.key.Name)
	}
	switch s.action {
	case recordInSync:
		return 0, t.recordStep(s, s.next, t.object.hub, t.object.spoke)
	case deleteRecord:
		t.deleteRecord()
		t.share.reportDecision(t.key.Name, t.spec, s.conflicts, t.winner, t.object.spoke.uid)
		t.engine.queue.Add(t.key)
		return 0, nil
	case writeObject, deleteObject:
		if r := t.object.refusal; r != nil && r.matches(t.object) && time.Until(r.until) > 0 {
			return time.Until(r.until), nil
		}
		if wait := t.engine.limiter.Delay(t.key); wait > 0 {
			t.setFailure(fmt.Sprintf("object %q changes too often: writes are limited to a few a second", t.key.Name))
			return wait, nil
		}
		return 0, t.executeRequest(ctx, s)
	case holdDeletion:
		t.share.evaluateOnce(t.key.Name, s.side)
		return 0, nil
	case doNothing:
		t.setFailure("")
		t.share.dropRecordedContent(t.key.Name, t.record)
		return 0, nil
	default: // collide
		return 0, nil
	}
}

// executeRequest executes a write or a deletion, in the cluster or on the hub.
func (t *reconciliation) executeRequest(ctx context.Context, s step) error {
	if s.action == writeObject {
		var err error
		if s.raw, err = sharedobject.Encode(s.to); err != nil {
			return err
		}
		if !t.share.reserve(t.key.Name, s.side, len(s.raw)) {
			t.setFailure("")
			return nil
		}
	}
	switch {
	case s.action == deleteObject && s.side == merge.Hub:
		return t.deleteFromHub(ctx, s)
	case s.action == deleteObject:
		return t.deleteFromSpoke(ctx, s)
	case s.side == merge.Hub:
		return t.writeHub(ctx, s)
	default:
		return t.writeSpoke(ctx, s)
	}
}

// writeSpoke executes a write in the cluster.
func (t *reconciliation) writeSpoke(ctx context.Context, s step) error {
	if err := t.recordPendingWrite(ctx, s, t.object.spoke, 0); err != nil {
		return err
	}
	t.engine.limiter.Spend(t.key, 0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := t.sendSpokeWrite(ctx, s)
	if err != nil {
		return t.handleSpokeError(s, err)
	}
	return t.recordSpokeWrite(ctx, s, got)
}

// deleteFromSpoke deletes the known version of an object in the cluster; finalizers are
// honoured. A later version is decided about again.
func (t *reconciliation) deleteFromSpoke(ctx context.Context, s step) error {
	if t.object.spoke.deleting {
		return nil
	}
	if err := t.recordPendingDeletion(ctx, s); err != nil {
		return err
	}
	t.engine.limiter.Spend(t.key, 0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid, version := t.object.spoke.uid, t.object.resourceVersion
	err := t.client().Delete(ctx, t.key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	switch {
	case err == nil:
		t.updateObject(func(o *object) { o.spoke.deleting = o.spoke.deleting || o.spoke.uid == uid })
		t.setFailure("")
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", errOutdated, err)
	}
	if isUncertain(err) {
		t.setFailure(fmt.Sprintf("cluster: object %q cannot be deleted: %v", t.key.Name, err))
		return err
	}
	t.backOff(fmt.Sprintf("cluster: object %q cannot be deleted: %v", t.key.Name, err))
	return nil
}

// deleteFromHub requests the deletion of an object on the hub, unless its deletion in the
// cluster came from the end of the namespace or the definition.
func (t *reconciliation) deleteFromHub(ctx context.Context, s step) error {
	if t.object.hub.deleting {
		return nil
	}
	if !t.object.spoke.present {
		problem, err := t.share.termination.check(ctx, t.share, t.spec, t.object.deletedAt)
		if err != nil {
			return err
		}
		if problem != nil {
			t.share.suspend(ctx, problem)
			return nil
		}
	}
	if err := t.recordPendingDeletion(ctx, s); err != nil {
		return err
	}
	return t.publishWrite(s, t.engine.nextGeneration(), wire.SharedWrite{Part: wire.PartDeletion, Seen: t.object.hub.version})
}

// writeHub publishes a write to the hub.
func (t *reconciliation) writeHub(ctx context.Context, s step) error {
	if !t.engine.acquireWriteSlot(t.key) {
		return nil
	}
	generation := t.engine.nextGeneration()
	if len(s.raw) > wire.MaxSharedContent {
		t.engine.releaseWriteSlot(t.key)
		t.share.release(t.key.Name)
		t.setFailure(fmt.Sprintf("object %q is too large to be shared: %d bytes, limit is %d", t.key.Name, len(s.raw), wire.MaxSharedContent))
		return nil
	}
	if err := t.recordPendingWrite(ctx, s, t.object.hub, generation); err != nil {
		t.engine.releaseWriteSlot(t.key)
		return err
	}
	w := wire.SharedWrite{Part: s.part, Content: s.raw}
	if s.from != nil {
		w.Seen = t.object.hub.version
	}
	s.raw = nil // the write has the bytes
	return t.publishWrite(s, generation, w)
}
