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

// usage is what an object counts for: on each side as shared, and for the cluster's owner.
type usage struct {
	hub, spoke, owner wire.SharedSize
}

func (c usage) minus(d usage) usage {
	return usage{hub: c.hub.Minus(d.hub), spoke: c.spoke.Minus(d.spoke), owner: c.owner.Minus(d.owner)}
}

// of returns the shared size on a side.
func (c usage) of(side merge.Side) wire.SharedSize {
	if side == merge.Hub {
		return c.hub
	}
	return c.spoke
}

// usedSize returns the size of an object on a side; zero if it is not there.
func (s *sideState) usedSize() wire.SharedSize {
	if !s.present {
		return wire.SharedSize{}
	}
	return wire.SharedSize{Objects: 1, Bytes: int64(s.size)}
}

// reservation is the size that a pending write gives an object on one side.
type reservation struct {
	side merge.Side
	size wire.SharedSize
}

// computeUsage returns the usage of an object: its size, or that of its reservation where
// that is larger.
func (o *object) computeUsage() usage {
	hub, spoke := o.hub.usedSize(), o.spoke.usedSize()
	if o.reservation.side == merge.Hub {
		hub = maxSize(hub, o.reservation.size)
	} else {
		spoke = maxSize(spoke, o.reservation.size)
	}
	c := usage{hub: hub, spoke: spoke, owner: spoke}
	if o.hub.unselected {
		c.hub = wire.SharedSize{}
	}
	if o.spoke.unselected {
		c.spoke = wire.SharedSize{}
	}
	return c
}

func maxSize(a, b wire.SharedSize) wire.SharedSize {
	return wire.SharedSize{Objects: max(a.Objects, b.Objects), Bytes: max(a.Bytes, b.Bytes)}
}

// updateUsage updates the usage of an object, and requeues objects that wait for quota if it
// shrank; s.mu is held.
func (s *share) updateUsage(o *object) {
	now := o.computeUsage()
	if now == o.usage {
		return
	}
	freed := o.usage.minus(now)
	s.usage, o.usage = s.usage.minus(freed), now
	for _, one := range []wire.SharedSize{freed.hub, freed.spoke, freed.owner} {
		if one.Objects > 0 || one.Bytes > 0 {
			s.requeueWaiting()
			return
		}
	}
}

// notThere is the size of an object that does not exist.
const notThere = -1

// sizeOf returns the size of an object of the cluster.
func sizeOf(obj *unstructured.Unstructured, deleted bool) int64 {
	if deleted {
		return notThere
	}
	raw, err := sharedobject.Encode(sharedobject.Of(obj))
	if err != nil {
		return notThere
	}
	return int64(len(raw))
}

// updateUnselected counts an object of the cluster that is not selected; s.mu is held.
func (s *share) updateUnselected(name string, size int64) {
	old, was := s.unselectedSizes[name]
	if was {
		s.usage.owner = s.usage.owner.Minus(wire.SharedSize{Objects: 1, Bytes: old})
		delete(s.unselectedSizes, name)
	}
	if size >= 0 {
		s.unselectedSizes[name] = size
		s.usage.owner = s.usage.owner.Plus(wire.SharedSize{Objects: 1, Bytes: size})
	}
	if was && size < old {
		s.requeueWaiting()
	}
}

// requeueWaiting enqueues all objects that wait for quota; s.mu is held.
func (s *share) requeueWaiting() {
	for name := range s.shortages {
		s.engine.queue.Add(s.objectKey(name))
	}
}

// shortage is why an object waits for quota on a side.
type shortage struct {
	side, reason, limit string
}

// findShortage returns which quota a side has reached for an object of a size; the zero value
// for none. s.mu is held.
func (s *share) findShortage(o *object, side merge.Side, wants wire.SharedSize) shortage {
	has, where := o.hub.usedSize(), "hub"
	if side == merge.Spoke {
		has, where = o.spoke.usedSize(), "cluster"
	}
	others := s.usage.minus(o.usage)
	if reason := s.spec.Quota.Exceeded(others.of(side), has, wants); reason != "" {
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

// reserve reserves quota for a write of an object, or returns false and has the object wait.
func (s *share) reserve(name string, side merge.Side, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok || s.spec == nil {
		return false // it is no more
	}
	wants := wire.SharedSize{Objects: 1, Bytes: int64(size)}
	short := s.findShortage(o, side, wants)
	if short == (shortage{}) {
		o.reservation = reservation{side: side, size: wants}
	} else {
		o.reservation = reservation{}
	}
	s.updateUsage(o)
	s.setShortage(name, short)
	return short == shortage{}
}

// setShortage records what an object waits for; the zero value for nothing; s.mu is held.
func (s *share) setShortage(name string, short shortage) {
	if s.shortages[name] == short {
		return
	}
	if s.shortages[name] = short; short == (shortage{}) {
		delete(s.shortages, name)
	}
	s.requestReport()
}

// release ends the reservation of an object, and its wait for quota.
func (s *share) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setShortage(name, shortage{})
	if o, ok := s.objects[name]; ok {
		o.reservation = reservation{}
		s.updateUsage(o)
	}
}

// quotaReached returns the shortage of the first object that waits, with all objects that wait
// for the same; nil if none waits. s.mu is held.
func (s *share) quotaReached() *wire.ShareProblem {
	if len(s.shortages) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.shortages))
	first := s.shortages[names[0]]
	names = slices.DeleteFunc(names, func(name string) bool { return s.shortages[name] != first })
	return wire.QuotaReached(first.reason, first.side, first.limit, names)
}
