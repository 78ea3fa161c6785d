// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// entry is what is published of one name. Two of the same says have the same body.
type entry struct {
	entrySummary
	raw []byte
}

// entrySummary is what an entry says, with the hash in place of the content.
type entrySummary struct {
	uid                           string
	generation                    int64
	hash                          string
	deleting, deleted, unselected bool
	answer
}

// hasObject tells whether it has the object.
func (s entrySummary) hasObject() bool { return s.hash != "" }

func (e entry) resource(key string) (resource.Resource, error) {
	said := wire.SharedObject{
		Version: e.hash, Content: e.raw, Deleting: e.deleting, Deleted: e.deleted, Unselected: e.unselected,
		Applied: e.applied, Refused: e.refused, Reason: e.reason,
	}
	if e.result != nil {
		said.Result = e.result.raw
	}
	body, err := json.Marshal(said)
	return resource.Resource{Key: key, UID: e.uid, Generation: e.generation, Body: body}, err
}

// isShared tells whether an object is shared: it is selected, and not too large. Of any
// other the cluster is told that it is not selected: were nothing said it would count as
// absent.
func (s *share) isShared(o *object) bool { return o.raw != nil && s.target.selector.Matches(o.labels) }

// buildEntry is what is to be published of a name; false for nothing.
func (s *share) buildEntry(name string) (e entry, ok bool) {
	if r := s.requests[name]; r != nil {
		e.answer = r.answer
	}
	o := s.scope.objects[name]
	if o != nil && s.isShared(o) {
		e.uid, e.generation, e.hash, e.raw, e.deleting = string(o.uid), o.generation, o.hash, o.raw, o.deleting
		return e, true
	}
	if t, ok := s.tombstones[name]; ok && (o == nil || t.unselected) {
		e.uid, e.generation, e.deleted, e.unselected = string(t.uid), t.generation, !t.unselected, t.unselected
		return e, true
	}
	return e, e.answer != answer{}
}

// syncObject publishes what the hub has of a name, once it is known.
func (s *share) syncObject(name string) {
	if !s.isPublished || s.findProblem() != nil {
		s.publishAnswer(name)
		return // what is absent means nothing
	}
	o := s.scope.objects[name]
	if r := s.requests[name]; r != nil && r.holdsBack(o) {
		return // what contains the write is to say so
	}
	last, published := s.entries[name]
	if _, vanished := s.scope.unverified[name]; vanished && published && last.hasObject() {
		return // whether it was deleted is being looked up
	}
	switch {
	case o == nil:
	case s.isShared(o):
		s.deleteTombstone(name)
	case last.hasObject() || s.tombstones[name].isReplacedBy(o):
		s.putTombstone(name, tombstone{uid: o.uid, generation: o.generation, unselected: true})
	}
	s.updateLarge(name, o)
	next, ok := s.buildEntry(name)
	switch {
	case !ok && published:
		delete(s.entries, name)
		s.updateUse(name)
		s.source(wire.KindSharedObject).Delete(s.objectKey(name))
	case ok && (!published || last.entrySummary != next.entrySummary):
		s.putEntry(name, next)
	}
}

// publishAnswer publishes what became of a write beside what is published.
func (s *share) publishAnswer(name string) {
	r, e := s.requests[name], s.entries[name]
	if r == nil || r.isHeld || r.answer == e.answer || r.answer == (answer{}) {
		return
	}
	e.answer = r.answer
	s.putEntry(name, e)
}

// putEntry publishes an entry.
func (s *share) putEntry(name string, e entry) {
	r, err := e.resource(s.objectKey(name))
	if err == nil {
		err = s.source(wire.KindSharedObject).Put(r)
	}
	if err != nil {
		s.controller.cfg.Logger.Error(err, "object cannot be published", "cluster", s.cluster, "share", s.name, "object", name)
		return
	}
	s.entries[name] = e
	s.updateUse(name)
}

// updateLarge notes whether an object is too large.
func (s *share) updateLarge(name string, o *object) {
	size, was := s.large[name]
	is := o != nil && o.raw == nil && s.target.selector.Matches(o.labels)
	switch {
	case is && size != o.size:
		s.large[name] = o.size
	case !is && was:
		delete(s.large, name)
	default:
		return
	}
	s.updateUse(name)
	s.controller.statusQueue.Add(s.name)
}

// publishDeletion publishes that an object was deleted, if it was published.
func (s *share) publishDeletion(name string, t tombstone) {
	if s.entries[name].hasObject() && s.scope.objects[name] == nil {
		s.putTombstone(name, t)
	}
	s.syncObject(name)
}

// addUnselectedTombstones has objects published that are not shared: the cluster may have known
// them as such that are, before this process. There may be many; those that have changed
// last are more likely.
func (s *share) addUnselectedTombstones() {
	var names []string
	for name, o := range s.scope.objects {
		if !s.isShared(o) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.scope.objects[a].generation, s.scope.objects[b].generation), cmp.Compare(a, b))
	})
	for _, name := range names[max(0, len(names)-maxTombstones):] {
		o := s.scope.objects[name]
		s.putTombstone(name, tombstone{uid: o.uid, generation: o.generation, unselected: true})
	}
}

// putTombstone keeps a tombstone in place of any, and not more than are published.
func (s *share) putTombstone(name string, t tombstone) {
	if s.tombstones[name] == t {
		return
	}
	s.deleteTombstone(name)
	s.tombstones[name] = t
	s.tombstoneOrder = append(s.tombstoneOrder, name)
	for len(s.tombstones) > maxTombstones {
		oldest := s.tombstoneOrder[0]
		s.deleteTombstone(oldest)
		s.syncObject(oldest)
	}
}

// deleteTombstone forgets a deletion.
func (s *share) deleteTombstone(name string) {
	if _, ok := s.tombstones[name]; !ok {
		return
	}
	delete(s.tombstones, name)
	i := slices.Index(s.tombstoneOrder, name)
	s.tombstoneOrder = slices.Delete(s.tombstoneOrder, i, i+1)
}

// loadObject makes the body of an object, or of the fence, when it is sent: contents are kept
// once for all clusters. It is that which was published.
func (c *Controller) loadObject(cluster, key string) (resource.Resource, bool) {
	k, err := wire.ParseSharedKey(key)
	if err != nil {
		return resource.Resource{}, false
	}
	e, fence, ok := c.getEntry(cluster, k)
	if !ok || fence.Key != "" {
		return fence, ok
	}
	r, err := e.resource(key)
	return r, err == nil
}

func (c *Controller) getEntry(cluster string, k wire.SharedKey) (e entry, fence resource.Resource, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[shareKey{cluster: cluster, name: k.Share}]
	if s == nil {
		return e, fence, false
	}
	if id, is := k.Fence(); is {
		return e, s.newFenceResource(), id == s.fence
	}
	e, ok = s.entries[k.Name]
	return e, fence, ok
}
