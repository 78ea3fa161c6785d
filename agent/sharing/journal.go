// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// recordStep records that both sides are in step, as far as a step goes.
func (t *reconciliation) recordStep(s step, next merge.States, hub, spoke sideState) error {
	base, err := encodeStates(next)
	if err != nil {
		return err
	}
	r := &record{HubUID: hub.uid, SpokeUID: spoke.uid, HubNumber: t.object.hubNumber, SpokeVersion: t.object.resourceVersion, Base: base}
	if _, err := t.putRecord(r, false); err != nil {
		return err
	}
	t.markInSync()
	t.share.reportDecision(t.key.Name, t.spec, s.conflicts, t.winner, spoke.uid)
	return nil
}

// markInSync notes that both sides of the object are the same, as far as is known.
func (t *reconciliation) markInSync() {
	t.share.mu.Lock()
	t.share.syncedHubVersion = max(t.share.syncedHubVersion, t.object.hubNumber)
	t.share.mu.Unlock()
	t.updateObject(func(o *object) { o.refusal = nil })
	t.setFailure("")
}

// putRecord keeps a record; durable is closed once it survives a crash.
func (t *reconciliation) putRecord(r *record, urgent bool) (durable <-chan struct{}, err error) {
	raw, err := r.encode()
	if err != nil {
		return nil, err
	}
	if durable, err = t.engine.cfg.Records.Put(t.key.String(), raw, urgent); err != nil {
		t.setFailure(fmt.Sprintf("object %q: %v", t.key.Name, err))
		return nil, err
	}
	t.updateObject(func(o *object) {
		o.hasRecord = true
		o.replaceRecord(t.record, r)
	})
	t.record = r
	return durable, nil
}

// recordPendingWrite records a write before it is made, and returns when that survives a crash.
func (t *reconciliation) recordPendingWrite(ctx context.Context, s step, prior sideState, generation int64) error {
	next, err := encodeStates(s.next)
	if err != nil {
		return err
	}
	r := record{HubUID: t.object.hub.uid, SpokeUID: t.object.spoke.uid, HubNumber: t.object.hubNumber, SpokeVersion: t.object.resourceVersion}
	if t.record != nil {
		r.Base, r.Uncertain = t.record.Base, t.record.Uncertain
	}
	r.Pending = &pendingWrite{Side: wireSide(s.side), Wrote: sharedobject.Version(s.raw), Generation: generation, Part: s.part, Next: next, Conflicts: s.conflicts}
	if !bytes.Equal(s.raw, next.Hub) {
		r.Pending.To = s.raw
	}
	if prior.present {
		r.Pending.Prior = prior.version
	}
	return t.putRecordDurably(ctx, &r)
}

// recordPendingDeletion records a deletion that decides a conflict, as begin does a write.
func (t *reconciliation) recordPendingDeletion(ctx context.Context, s step) error {
	if len(s.conflicts) == 0 {
		return nil
	}
	r := *t.record
	r.Pending = &pendingWrite{Side: wireSide(s.side), Part: wire.PartDeletion, Conflicts: s.conflicts}
	return t.putRecordDurably(ctx, &r)
}

// putRecordDurably returns when a record survives a crash.
func (t *reconciliation) putRecordDurably(ctx context.Context, r *record) error {
	durable, err := t.putRecord(r, true)
	if err != nil {
		return err
	}
	select {
	case <-durable:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// clearPendingWrite records that a write was not done.
func (t *reconciliation) clearPendingWrite() error {
	r := *t.record
	if r.Pending = nil; r.Base.Hub == nil {
		t.deleteRecord()
		return nil
	}
	_, err := t.putRecord(&r, false)
	return err
}

// deleteRecord forgets the record.
func (t *reconciliation) deleteRecord() {
	t.engine.cfg.Records.Delete(t.key.String())
	t.updateObject(func(o *object) {
		o.hasRecord = false
		o.replaceRecord(t.record, nil)
	})
	t.record = nil
	t.share.mu.Lock()
	t.share.deleteIfUnused(t.key.Name)
	t.share.mu.Unlock()
}
