// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"errors"
	"time"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
)

// reconciliation takes the next step for one object, in three phases: it resolves the write
// that is pending, decides, and executes what was decided.
type reconciliation struct {
	journal
	policy

	engine *Engine
	spec   *wire.Share
}

// reconcile takes the next step for an object, if there is one. It is called again after the
// returned duration, if that is not 0.
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

// newReconciliation copies what is known of an object; nil when nothing can be done for it now.
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
	t := &reconciliation{
		journal: journal{share: s, key: s.objectKey(name), object: *o, record: r}, engine: s.engine, spec: spec,
		policy: policy{
			toSpoke: spec.ToSpoke, toHub: spec.ToHub, winner: sideOf(spec.Winner), adoptAny: spec.AdoptAny,
			hubStatus: spec.StatusSubresource, spokeStatus: s.definition.status, replaced: s.replaced, schema: s.definition.schema,
		},
	}
	t.object.hub.loadContent(r)
	t.object.spoke.loadContent(r)
	return t, nil
}

// decide returns the next step, from the record and both sides as they are now.
func (t *reconciliation) decide() (step, error) {
	in := mergeInput{policy: t.policy, record: t.record, hub: t.object.hub, spoke: t.object.spoke}
	if t.record != nil && t.record.Uncertain != nil {
		base, err := t.record.Uncertain.Next.decode()
		if err != nil {
			return step{}, err
		}
		in.uncertainBase, in.uncertainSide = &base, sideOf(t.record.Uncertain.Side)
	}
	return in.decide()
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

// backOff records that a write was refused, and when it is retried.
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

// matches reports whether both sides have the versions of the refused write.
func (r *refusal) matches(o object) bool { return r.hub == o.hub.version && r.spoke == o.spoke.version }

// errOutdated is returned where the cluster has a later version of an object.
var errOutdated = errors.New("object has changed meanwhile")
