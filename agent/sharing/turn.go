// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// turn is one look at one object: what was known of it then.
type turn struct {
	engine *Engine
	share  *share
	key    wire.SharedKey
	spec   *wire.Share
	object object
	question
}

// see takes the next step for an object, if there is one. It comes again after the time
// that it returns.
func (e *Engine) see(ctx context.Context, key wire.SharedKey) (again time.Duration, err error) {
	s := e.find(key.Share)
	if s == nil {
		return 0, nil
	}
	if err := s.refresh(ctx, key.Name); err != nil {
		return 0, err
	}
	t, err := s.turn(key.Name)
	if err != nil || t == nil {
		return 0, err
	}
	waits, err := t.conclude(ctx)
	if err != nil || waits {
		return 0, err
	}
	next, err := t.decide()
	if err != nil {
		t.fail(err.Error())
		return 0, err
	}
	return t.take(ctx, next)
}

// turn gathers what is known of an object; nil when nothing can be done for it now.
func (s *share) turn(name string) (*turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok || !s.acts() {
		return nil, nil
	}
	r, err := s.record(name)
	if err != nil {
		return nil, err
	}
	spec := s.spec
	t := &turn{engine: s.engine, share: s, key: s.key(name), spec: spec, object: *o}
	t.object.hub.load(r)
	t.object.spoke.load(r)
	t.question = question{
		policy: policy{
			toSpoke: spec.ToSpoke, toHub: spec.ToHub, winner: sideOf(spec.Winner), adoptAny: spec.AdoptAny,
			hubStatus: spec.StatusSubresource, spokeStatus: s.definition.status, replaced: s.replaced, schema: s.definition.schema,
		},
		record: r, hub: t.object.hub, spoke: t.object.spoke,
	}
	return t, t.reckon()
}

// reckon has the next step reckon with what the record doubts.
func (t *turn) reckon() error {
	if t.record == nil || t.record.Doubt == nil {
		t.unsure = nil
		return nil
	}
	base, err := t.record.Doubt.Next.decode()
	t.unsure, t.written = &base, sideOf(t.record.Doubt.Side)
	return err
}

func sideOf(side wire.SharedSide) merge.Side {
	if side == wire.SharedHub {
		return merge.Hub
	}
	return merge.Spoke
}

// take takes a step.
func (t *turn) take(ctx context.Context, s step) (time.Duration, error) {
	t.differ(s.fields)
	if s.do != write {
		t.share.unreserve(t.key.Name)
	}
	switch s.do {
	case adopt:
		return 0, t.settle(s, s.next, t.object.hub, t.object.spoke)
	case forget:
		t.drop()
		t.share.tellDecided(t.key.Name, t.spec, s.conflicts, t.winner, t.object.spoke.uid)
		t.engine.queue.Add(t.key)
		return 0, nil
	case write, remove:
		if r := t.object.refusal; r != nil && r.of(t.object) && time.Until(r.until) > 0 {
			return time.Until(r.until), nil
		}
		if wait := t.engine.pace.Delay(t.key); wait > 0 {
			t.fail(fmt.Sprintf("object %q changes too often: it is written a few times a second, with what it is then", t.key.Name))
			return wait, nil
		}
		return 0, t.request(ctx, s)
	case held:
		t.share.weigh(t.key.Name, s.side)
		return 0, nil
	case rest:
		t.fail("")
		t.share.leave(t.key.Name, t.record)
		return 0, nil
	default: // collide
		return 0, nil
	}
}

// request makes the request of a step, to the cluster or of the hub.
func (t *turn) request(ctx context.Context, s step) error {
	if s.do == write {
		var err error
		if s.raw, err = sharedobject.Encode(s.to); err != nil {
			return err
		}
		if !t.share.admit(t.key.Name, s.side, len(s.raw)) {
			t.fail("")
			return nil
		}
	}
	switch {
	case s.do == remove && s.side == merge.Hub:
		return t.removeFromHub(ctx, s)
	case s.do == remove:
		return t.removeFromSpoke(ctx, s)
	case s.side == merge.Hub:
		return t.writeToHub(ctx, s)
	default:
		return t.writeToSpoke(ctx, s)
	}
}

// settle records that both sides are in step, as far as a step goes.
func (t *turn) settle(s step, next merge.States, hub, spoke sight) error {
	base, err := newStates(next)
	if err != nil {
		return err
	}
	r := &record{HubUID: hub.uid, SpokeUID: spoke.uid, HubNumber: t.object.number, SpokeVersion: t.object.resourceVersion, Base: base}
	if _, err := t.put(r, false); err != nil {
		return err
	}
	t.inStep()
	t.share.tellDecided(t.key.Name, t.spec, s.conflicts, t.winner, spoke.uid)
	return nil
}

// inStep notes that both sides of the object are the same, as far as is known.
func (t *turn) inStep() {
	t.share.mu.Lock()
	t.share.settledHub = max(t.share.settledHub, t.object.number)
	t.share.mu.Unlock()
	t.update(func(o *object) { o.refusal = nil })
	t.fail("")
}

// put keeps a record; durable is closed once it survives a crash.
func (t *turn) put(r *record, urgent bool) (durable <-chan struct{}, err error) {
	raw, err := r.encode()
	if err != nil {
		return nil, err
	}
	if durable, err = t.engine.cfg.Records.Put(t.key.String(), raw, urgent); err != nil {
		t.fail(fmt.Sprintf("object %q: %v", t.key.Name, err))
		return nil, err
	}
	t.update(func(o *object) {
		o.recorded = true
		o.keep(t.record, r)
	})
	t.record = r
	return durable, nil
}

// begin records a write before it is made, and returns when that survives a crash.
func (t *turn) begin(ctx context.Context, s step, prior sight, generation int64) error {
	next, err := newStates(s.next)
	if err != nil {
		return err
	}
	r := record{HubUID: t.object.hub.uid, SpokeUID: t.object.spoke.uid, HubNumber: t.object.number, SpokeVersion: t.object.resourceVersion}
	if t.record != nil {
		r.Base, r.Doubt = t.record.Base, t.record.Doubt
	}
	r.Pending = &pending{Side: wireSide(s.side), Wrote: sharedobject.Version(s.raw), Generation: generation, Part: s.part, Next: next, Conflicts: s.conflicts}
	if !bytes.Equal(s.raw, next.Hub) {
		r.Pending.To = s.raw
	}
	if prior.present {
		r.Pending.Prior = prior.version
	}
	return t.putDurable(ctx, &r)
}

// beginRemoval records a deletion that decides a conflict, as begin does a write.
func (t *turn) beginRemoval(ctx context.Context, s step) error {
	if len(s.conflicts) == 0 {
		return nil
	}
	r := *t.record
	r.Pending = &pending{Side: wireSide(s.side), Part: wire.PartDeletion, Conflicts: s.conflicts}
	return t.putDurable(ctx, &r)
}

// putDurable returns when a record survives a crash.
func (t *turn) putDurable(ctx context.Context, r *record) error {
	durable, err := t.put(r, true)
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

func wireSide(side merge.Side) wire.SharedSide {
	if side == merge.Hub {
		return wire.SharedHub
	}
	return wire.SharedSpoke
}

// revoke records that a write was not done.
func (t *turn) revoke() error {
	r := *t.record
	if r.Pending = nil; r.Base.Hub == nil {
		t.drop()
		return nil
	}
	_, err := t.put(&r, false)
	return err
}

// drop forgets the record.
func (t *turn) drop() {
	t.engine.cfg.Records.Delete(t.key.String())
	t.update(func(o *object) {
		o.recorded = false
		o.keep(t.record, nil)
	})
	t.record = nil
	t.share.mu.Lock()
	t.share.tidy(t.key.Name)
	t.share.mu.Unlock()
}

// update changes what is known of the object.
func (t *turn) update(f func(*object)) {
	t.share.mu.Lock()
	defer t.share.mu.Unlock()
	if o, ok := t.share.objects[t.key.Name]; ok {
		f(o)
		t.share.changed()
	}
}

// fail notes why the sides are not the same; an empty text, that they are.
func (t *turn) fail(text string) {
	if t.object.failure == text {
		return
	}
	t.object.failure = text
	t.update(func(o *object) { o.failure = text })
}

// refuse notes that a write was refused, and when it is tried again.
func (t *turn) refuse(text string) {
	t.fail(text)
	next := &refusal{hub: t.object.hub.version, spoke: t.object.spoke.version, pause: firstPause}
	if r := t.object.refusal; r != nil && r.of(t.object) {
		next.pause = min(2*r.pause, longestPause)
	}
	next.until = time.Now().Add(next.pause)
	t.update(func(o *object) { o.refusal = next })
	t.share.unreserve(t.key.Name)
	t.engine.queue.AddAfter(t.key, next.pause)
}

// of tells whether both sides are what they were then.
func (r *refusal) of(o object) bool { return r.hub == o.hub.version && r.spoke == o.spoke.version }

// differ notes the fields of a collision.
func (t *turn) differ(fields []string) {
	if len(fields) == len(t.object.differs) && len(fields) == 0 {
		return
	}
	t.update(func(o *object) { o.differs = fields })
	if len(fields) > 0 {
		d := wire.NewDecided(0, t.key.Name, fields, wire.SharedHub)
		t.fail(fmt.Sprintf("object %q exists on both sides and differs in %v: it is not shared", t.key.Name, d.Fields))
	}
}

// errBehind: what is known of an object is older than what is there.
var errBehind = errors.New("object has changed meanwhile")
