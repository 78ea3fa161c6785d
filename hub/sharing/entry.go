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

// entry is what is published of one object. Entries with equal summaries have the same body.
type entry struct {
	entrySummary
	raw []byte
}

// entrySummary is an entry with the hash in place of the content.
type entrySummary struct {
	uid                           string
	generation                    int64
	hash                          string
	deleting, deleted, unselected bool
	answer
}

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

// isShared reports whether an object is selected and not too large. Other objects are
// published as not selected: otherwise they would count as absent.
func (s *share) isShared(o *object) bool { return o.raw != nil && s.target.selector.Matches(o.labels) }

// buildEntry returns what is to be published of an object; false for nothing.
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

// syncObject publishes an object as it is, once that is known.
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

// publishAnswer publishes the answer to a write, and leaves the rest of the entry.
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
		s.registry.cfg.Logger.Error(err, "Object cannot be published", "cluster", s.cluster, "share", s.name, "object", name)
		return
	}
	s.entries[name] = e
	s.updateUse(name)
}

// updateLarge records whether an object is too large.
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
	s.registry.statusQueue.Add(s.name)
}

// publishDeletion publishes the deletion of an object that was published.
func (s *share) publishDeletion(name string, t tombstone) {
	if s.entries[name].hasObject() && s.scope.objects[name] == nil {
		s.putTombstone(name, t)
	}
	s.syncObject(name)
}

// addUnselectedTombstones publishes objects that are not shared as such: under the process
// before they may have been. Their number is bounded; those that have changed last come first.
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

// putTombstone adds or replaces a tombstone, and deletes the oldest beyond the bound.
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

func (s *share) deleteTombstone(name string) {
	if _, ok := s.tombstones[name]; !ok {
		return
	}
	delete(s.tombstones, name)
	i := slices.Index(s.tombstoneOrder, name)
	s.tombstoneOrder = slices.Delete(s.tombstoneOrder, i, i+1)
}

// loadObject builds the body of an object or a fence when it is sent, so that contents are in
// memory once for all clusters.
func (c *registry) loadObject(cluster, key string) (resource.Resource, bool) {
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

func (c *registry) getEntry(cluster string, k wire.SharedKey) (e entry, fence resource.Resource, ok bool) {
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
