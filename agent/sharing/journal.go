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

// journal has the record of one object, and what else the engine remembers of it, as it was
// at the begin of a reconciliation and as that changes it.
type journal struct {
	share  *share
	key    wire.SharedKey
	object object
	// record is nil when both sides were never in sync.
	record *record
}

// recordStep records the contents that are in sync after a step.
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

// markInSync clears the failure of an object whose sides are in sync.
func (j *journal) markInSync() {
	j.share.mu.Lock()
	j.share.syncedHubVersion = max(j.share.syncedHubVersion, j.object.hubNumber)
	j.share.mu.Unlock()
	j.updateObject(func(o *object) { o.refusal = nil })
	j.setFailure("")
}

// putRecord stores a record; durable is closed once it survives a crash.
func (j *journal) putRecord(r *record, urgent bool) (durable <-chan struct{}, err error) {
	raw, err := r.encode()
	if err != nil {
		return nil, err
	}
	if durable, err = j.share.engine.cfg.Records.Put(j.key.String(), raw, urgent); err != nil {
		j.setFailure(fmt.Sprintf("object %q: %v", j.key.Name, err))
		return nil, err
	}
	j.updateObject(func(o *object) {
		o.hasRecord = true
		o.replaceRecord(j.record, r)
	})
	j.record = r
	return durable, nil
}

// recordPendingWrite records a write before its request, and returns when the record survives
// a crash.
func (j *journal) recordPendingWrite(ctx context.Context, s step, prior sideState, generation int64) error {
	next, err := encodeStates(s.next)
	if err != nil {
		return err
	}
	r := record{HubUID: j.object.hub.uid, SpokeUID: j.object.spoke.uid, HubNumber: j.object.hubNumber, SpokeVersion: j.object.resourceVersion}
	if j.record != nil {
		r.Base, r.Uncertain = j.record.Base, j.record.Uncertain
	}
	r.Pending = &pendingWrite{Side: wireSide(s.side), Wrote: sharedobject.Version(s.raw), Generation: generation, Part: s.part, Next: next, Conflicts: s.conflicts}
	if !bytes.Equal(s.raw, next.Hub) {
		r.Pending.To = s.raw
	}
	if prior.present {
		r.Pending.Prior = prior.version
	}
	return j.putRecordDurably(ctx, &r)
}

// recordPendingDeletion does the same for a deletion that decides a conflict.
func (j *journal) recordPendingDeletion(ctx context.Context, s step) error {
	if len(s.conflicts) == 0 {
		return nil
	}
	r := *j.record
	r.Pending = &pendingWrite{Side: wireSide(s.side), Part: wire.PartDeletion, Conflicts: s.conflicts}
	return j.putRecordDurably(ctx, &r)
}

// putRecordDurably stores a record and returns when it survives a crash.
func (j *journal) putRecordDurably(ctx context.Context, r *record) error {
	durable, err := j.putRecord(r, true)
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

// clearPendingWrite records that the pending write was not done.
func (j *journal) clearPendingWrite() error {
	r := *j.record
	if r.Pending = nil; r.Base.Hub == nil {
		j.deleteRecord()
		return nil
	}
	_, err := j.putRecord(&r, false)
	return err
}

// deleteRecord deletes the record.
func (j *journal) deleteRecord() {
	j.share.engine.cfg.Records.Delete(j.key.String())
	j.updateObject(func(o *object) {
		o.hasRecord = false
		o.replaceRecord(j.record, nil)
	})
	j.record = nil
	j.share.mu.Lock()
	j.share.deleteIfUnused(j.key.Name)
	j.share.mu.Unlock()
}

// updateObject changes the share's state of the object.
func (j *journal) updateObject(f func(*object)) {
	j.share.mu.Lock()
	defer j.share.mu.Unlock()
	if o, ok := j.share.objects[j.key.Name]; ok {
		f(o)
		j.share.requestReport()
	}
}

// setFailure records why the sides are not in sync; empty if they are.
func (j *journal) setFailure(text string) {
	if j.object.failure == text {
		return
	}
	j.object.failure = text
	j.updateObject(func(o *object) { o.failure = text })
}

// setDifferences records the fields of a collision.
func (j *journal) setDifferences(fields []string) {
	if len(fields) == len(j.object.differences) && len(fields) == 0 {
		return
	}
	j.updateObject(func(o *object) { o.differences = fields })
	if len(fields) > 0 {
		d := wire.NewDecided(0, j.key.Name, fields, wire.SharedHub)
		j.setFailure(fmt.Sprintf("object %q exists on both sides and differs in %v: it is not shared", j.key.Name, d.Fields))
	}
}
