// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
)

// reconciliation is one look at one object: what was known of it then.
type reconciliation struct {
	engine *Engine
	share  *share
	key    wire.SharedKey
	spec   *wire.Share
	object object
	mergeInput
}

// reconcile takes the next step for an object, if there is one. It comes again after the time
// that it returns.
func (e *Engine) reconcile(ctx context.Context, key wire.SharedKey) (again time.Duration, err error) {
	s := e.getShare(key.Share)
	if s == nil {
		return 0, nil
	}
	if err := s.readStale(ctx, key.Name); err != nil {
		return 0, err
	}
	t, err := s.newReconciliation(key.Name)
	if err != nil || t == nil {
		return 0, err
	}
	waits, err := t.resolvePending(ctx)
	if err != nil || waits {
		return 0, err
	}
	next, err := t.decide()
	if err != nil {
		t.setFailure(err.Error())
		return 0, err
	}
	return t.execute(ctx, next)
}

// newReconciliation gathers what is known of an object; nil when nothing can be done for it now.
func (s *share) newReconciliation(name string) (*reconciliation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok || !s.isReady() {
		return nil, nil
	}
	r, err := s.loadRecord(name)
	if err != nil {
		return nil, err
	}
	spec := s.spec
	t := &reconciliation{engine: s.engine, share: s, key: s.objectKey(name), spec: spec, object: *o}
	t.object.hub.loadContent(r)
	t.object.spoke.loadContent(r)
	t.mergeInput = mergeInput{
		policy: policy{
			toSpoke: spec.ToSpoke, toHub: spec.ToHub, winner: sideOf(spec.Winner), adoptAny: spec.AdoptAny,
			hubStatus: spec.StatusSubresource, spokeStatus: s.definition.status, replaced: s.replaced, schema: s.definition.schema,
		},
		record: r, hub: t.object.hub, spoke: t.object.spoke,
	}
	return t, t.applyUncertainty()
}

// applyUncertainty has the next step reckon with what the record doubts.
func (t *reconciliation) applyUncertainty() error {
	if t.record == nil || t.record.Uncertain == nil {
		t.uncertainBase = nil
		return nil
	}
	base, err := t.record.Uncertain.Next.decode()
	t.uncertainBase, t.uncertainSide = &base, sideOf(t.record.Uncertain.Side)
	return err
}

func sideOf(side wire.SharedSide) merge.Side {
	if side == wire.SharedHub {
		return merge.Hub
	}
	return merge.Spoke
}

func wireSide(side merge.Side) wire.SharedSide {
	if side == merge.Hub {
		return wire.SharedHub
	}
	return wire.SharedSpoke
}

// updateObject changes what is known of the object.
func (t *reconciliation) updateObject(f func(*object)) {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	if o, ok := t.share.objects[t.key.Name]; ok {
		f(o)
		t.share.requestReport()
	}
}

// setFailure notes why the sides are not the same; an empty text, that they are.
func (t *reconciliation) setFailure(text string) {
	if t.object.failure == text {
		return
	}
	t.object.failure = text
	t.updateObject(func(o *object) { o.failure = text })
}

// backOff notes that a write was refused, and when it is tried again.
func (t *reconciliation) backOff(text string) {
	t.setFailure(text)
	next := &refusal{hub: t.object.hub.version, spoke: t.object.spoke.version, pause: firstRetry}
	if r := t.object.refusal; r != nil && r.matches(t.object) {
		next.pause = min(2*r.pause, longestRetry)
	}
	next.until = time.Now().Add(next.pause)
	t.updateObject(func(o *object) { o.refusal = next })
	t.share.release(t.key.Name)
	t.engine.queue.AddAfter(t.key, next.pause)
}

// matches tells whether both sides are what they were then.
func (r *refusal) matches(o object) bool { return r.hub == o.hub.version && r.spoke == o.spoke.version }

// setDifferences notes the fields of a collision.
func (t *reconciliation) setDifferences(fields []string) {
	if len(fields) == len(t.object.differences) && len(fields) == 0 {
		return
	}
	t.updateObject(func(o *object) { o.differences = fields })
	if len(fields) > 0 {
		d := wire.NewDecided(0, t.key.Name, fields, wire.SharedHub)
		t.setFailure(fmt.Sprintf("object %q exists on both sides and differs in %v: it is not shared", t.key.Name, d.Fields))
	}
}

// errOutdated: what is known of an object is older than what is there.
var errOutdated = errors.New("object has changed meanwhile")
