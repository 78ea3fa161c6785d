// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// A write that creates an object of one side, or makes one larger, waits while that side
// has no room for it. What waits is as it was: nothing is recorded of it, and it is looked
// at again when there is room. Nothing is deleted for a quota.
//
// The hub counts what is shared there, and so does the agent, which asks for nothing that
// would be refused. In the cluster two quotas hold: that of the share, for what it selects,
// and that of the cluster's owner, for all objects of the resource in the namespace: a hub
// may select others each time.

// counted is what of an object counts: on each side as shared, and in the cluster in all.
type counted struct {
	hub, spoke, owner wire.SharedSize
}

func (c counted) minus(d counted) counted {
	return counted{hub: c.hub.Minus(d.hub), spoke: c.spoke.Minus(d.spoke), owner: c.owner.Minus(d.owner)}
}

// shared is the part that is of a side.
func (c counted) shared(side merge.Side) wire.SharedSize {
	if side == merge.Hub {
		return c.hub
	}
	return c.spoke
}

// sizes are those of the object as far as it is there.
func (s *sight) sizes() wire.SharedSize {
	if !s.present {
		return wire.SharedSize{}
	}
	return wire.SharedSize{Objects: 1, Bytes: int64(s.size)}
}

// reserved is what a write that is under way makes of one side of an object.
type reserved struct {
	side merge.Side
	size wire.SharedSize
}

// counts is what of the object counts: what there is, or what a write makes of it where
// that is more.
func (o *object) counts() counted {
	hub, spoke := o.hub.sizes(), o.spoke.sizes()
	if o.reserved.side == merge.Hub {
		hub = larger(hub, o.reserved.size)
	} else {
		spoke = larger(spoke, o.reserved.size)
	}
	c := counted{hub: hub, spoke: spoke, owner: spoke}
	if o.hub.unselected {
		c.hub = wire.SharedSize{}
	}
	if o.spoke.unselected {
		c.spoke = wire.SharedSize{}
	}
	return c
}

func larger(a, b wire.SharedSize) wire.SharedSize {
	return wire.SharedSize{Objects: max(a.Objects, b.Objects), Bytes: max(a.Bytes, b.Bytes)}
}

// count counts an object anew, and has those looked at that wait if there is less now;
// s.mu is held.
func (s *share) count(o *object) {
	now := o.counts()
	if now == o.counted {
		return
	}
	freed := o.counted.minus(now)
	s.counted, o.counted = s.counted.minus(freed), now
	for _, one := range []wire.SharedSize{freed.hub, freed.spoke, freed.owner} {
		if one.Objects > 0 || one.Bytes > 0 {
			s.wake()
			return
		}
	}
}

// none is the size of an object that is not there.
const none = -1

// sizeOf is that of an object of the cluster.
func sizeOf(obj *unstructured.Unstructured, deleted bool) int64 {
	if deleted {
		return none
	}
	raw, err := sharedobject.Encode(sharedobject.Of(obj))
	if err != nil {
		return none
	}
	return int64(len(raw))
}

// countOther counts an object of the cluster that is none of s.objects, as it is not
// selected; s.mu is held.
func (s *share) countOther(name string, size int64) {
	old, was := s.others[name]
	if was {
		s.counted.owner = s.counted.owner.Minus(wire.SharedSize{Objects: 1, Bytes: old})
		delete(s.others, name)
	}
	if size >= 0 {
		s.others[name] = size
		s.counted.owner = s.counted.owner.Plus(wire.SharedSize{Objects: 1, Bytes: size})
	}
	if was && size < old {
		s.wake()
	}
}

// wake has all be looked at that wait for room; s.mu is held.
func (s *share) wake() {
	for name := range s.waiting {
		s.engine.queue.Add(s.key(name))
	}
}

// shortage is why there is no room on a side.
type shortage struct {
	side, reason, limit string
}

// shortageOf says why a side has no room to make an object of a size; the zero value, that
// it has. s.mu is held.
func (s *share) shortageOf(o *object, side merge.Side, wants wire.SharedSize) shortage {
	has, where := o.hub.sizes(), "hub"
	if side == merge.Spoke {
		has, where = o.spoke.sizes(), "cluster"
	}
	others := s.counted.minus(o.counted)
	if reason := s.spec.Quota.Exceeded(others.shared(side), has, wants); reason != "" {
		return shortage{side: where, reason: reason, limit: s.spec.Quota.Limit(reason)}
	}
	if side == merge.Hub {
		return shortage{}
	}
	owners := s.engine.cfg.Quota
	if reason := owners.Exceeded(others.owner, has, wants); reason != "" {
		return shortage{side: where, reason: reason, limit: owners.Limit(reason) + " (shared.quota of the agent)"}
	}
	return shortage{}
}

// admit tells whether there is room for a write of an object, and reserves it. What there
// is no room for waits.
func (s *share) admit(name string, side merge.Side, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok || s.spec == nil {
		return false // it is no more
	}
	wants := wire.SharedSize{Objects: 1, Bytes: int64(size)}
	short := s.shortageOf(o, side, wants)
	if short == (shortage{}) {
		o.reserved = reserved{side: side, size: wants}
	} else {
		o.reserved = reserved{}
	}
	s.count(o)
	s.waits(name, short)
	return short == shortage{}
}

// waits notes what an object waits for, or that it does not; s.mu is held.
func (s *share) waits(name string, short shortage) {
	if s.waiting[name] == short {
		return
	}
	if s.waiting[name] = short; short == (shortage{}) {
		delete(s.waiting, name)
	}
	s.changed()
}

// unreserve notes that no write of an object is under way, and that it does not wait.
func (s *share) unreserve(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits(name, shortage{})
	if o, ok := s.objects[name]; ok {
		o.reserved = reserved{}
		s.count(o)
	}
}

// quotaReached says what waits for the same as the first of all; nil for nothing. s.mu is
// held.
func (s *share) quotaReached() *wire.ShareProblem {
	if len(s.waiting) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.waiting))
	first := s.waiting[names[0]]
	names = slices.DeleteFunc(names, func(name string) bool { return s.waiting[name] != first })
	return wire.QuotaReached(first.reason, first.side, first.limit, names)
}
