// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// share is a SharedResource for one cluster. Its fields are guarded by registry.mu.
type share struct {
	registry      *registry
	name, cluster string
	target        target

	// scope has the objects; nil where the place of the objects has a problem.
	scope *scope
	// isPublished: all objects of the scope were published, and then fence, with the number
	// fenceVersion.
	isPublished  bool
	fence        string
	fenceVersion int64
	// isAnnounced: the share itself is published.
	isAnnounced bool

	// entries are the published objects, by name.
	entries map[string]entry
	// tombstones are of objects that were deleted or are no longer selected, tombstoneOrder has
	// their names, oldest first.
	tombstones     map[string]tombstone
	tombstoneOrder []string
	// requests are the cluster's writes, by name of the object.
	requests map[string]*writeRequest
	// large are the sizes of objects that are too large to be shared.
	large map[string]int
	// use is the memory of the objects, and beyondQuota are the sizes that refused writes would
	// have made, by name.
	use         memoryUse
	beyondQuota map[string]wire.SharedSize

	// state is the cluster's last report; nil before that.
	state *wire.ShareState
	// lastDecision is the number of the last decision that has an Event.
	lastDecision int64
}

type shareKey struct{ cluster, name string }

func (s *share) key() shareKey { return shareKey{cluster: s.cluster, name: s.name} }

func (s *share) objectKey(name string) string {
	return wire.SharedKey{Share: s.name, Name: name}.String()
}

func (s *share) source(kind string) *resource.Source {
	return s.registry.cfg.Sync.Source(s.cluster, kind)
}

// findProblem returns why nothing is shared; nil also while objects are being listed.
func (s *share) findProblem() *wire.ShareProblem {
	if s.target.body.Problem != nil {
		return s.target.body.Problem
	}
	if s.scope == nil {
		return nil
	}
	return s.scope.findProblem()
}

// clusterProblem returns the problem that the cluster gets.
func (s *share) clusterProblem() *wire.ShareProblem {
	if p := s.findProblem(); p != nil || s.isPublished {
		return p
	}
	return wire.NewShareProblem(v1alpha1.ReasonPending, "the objects are being read")
}

// isSettled reports whether the share can be published for the first time.
func (s *share) isSettled() bool { return s.isPublished || s.findProblem() != nil }

// setTarget applies a planned target.
func (s *share) setTarget(next target) {
	last := s.target
	s.target = next
	if last.place != next.place || !isSameSelector(last, next) {
		s.changePlace(last)
	}
	s.updateAllUse()
	s.publishShare()
	s.registry.statusQueue.Add(s.name)
}

func isSameSelector(a, b target) bool {
	return a.selector != nil && b.selector != nil && a.selector.String() == b.selector.String()
}

// changePlace replaces the objects of the last place by those of the next. It withdraws the
// fence first: without it the cluster does nothing.
func (s *share) changePlace(last target) {
	s.withdrawFence()
	s.isPublished = false
	if last.place.resource.GroupResource() != s.target.place.resource.GroupResource() || last.place.namespace != s.target.place.namespace {
		clear(s.tombstones)
		s.tombstoneOrder = nil
	}
	for _, r := range s.requests {
		r.isHeld, r.isDone = false, false
	}
	before := s.scope
	s.scope = nil
	if s.target.place != (place{}) {
		s.scope = s.registry.addToScope(s, s.target.place)
	}
	if before != nil && before != s.scope {
		s.registry.removeFromScope(s, before)
	}
	if s.scope != nil && s.scope.isListed {
		s.publishObjects()
	}
}

// publishObjects publishes all objects of the scope, and then a new fence.
func (s *share) publishObjects() {
	if s.findProblem() != nil {
		s.publishShare()
		return
	}
	s.isPublished = true
	s.addUnselectedTombstones()
	for _, names := range []map[string]struct{}{keys(s.entries), keys(s.scope.objects), keys(s.tombstones), keys(s.requests)} {
		for name := range names {
			s.syncObject(name)
		}
	}
	last := s.fence
	s.fence, s.fenceVersion = rand.Text(), s.scope.latestVersion()
	s.putResource(wire.KindSharedObject, s.newFenceResource())
	s.publishShare()
	if last != "" {
		s.source(wire.KindSharedObject).Delete(wire.FenceKey(s.name, last).String())
	}
	for name, r := range s.requests {
		if r.pending != nil {
			s.registry.writeQueue.Add(s.writeKey(name))
		}
	}
}

func keys[V any](m map[string]V) map[string]struct{} {
	out := make(map[string]struct{}, len(m))
	for key := range m {
		out[key] = struct{}{}
	}
	return out
}

func (s *share) newFenceResource() resource.Resource {
	body, err := json.Marshal(wire.Fence{Version: s.fenceVersion})
	if err != nil {
		panic(fmt.Sprintf("shared: a fence is JSON: %v", err))
	}
	return resource.Resource{Key: wire.FenceKey(s.name, s.fence).String(), Generation: s.fenceVersion, Body: body}
}

func (s *share) withdrawFence() {
	if s.fence != "" {
		s.source(wire.KindSharedObject).Delete(wire.FenceKey(s.name, s.fence).String())
		s.fence = ""
	}
}

// publishShare publishes the share. A new one waits until it is settled.
func (s *share) publishShare() {
	if !s.isAnnounced && !s.isSettled() {
		return
	}
	s.isAnnounced = true
	s.putResource(wire.KindShare, s.newShareResource())
	s.registry.statusQueue.Add(s.name)
}

// newShareResource returns the share as the cluster gets it.
func (s *share) newShareResource() resource.Resource {
	body := s.target.body
	body.Fence, body.Problem = s.fence, s.clusterProblem()
	raw, err := json.Marshal(body)
	if err != nil {
		s.registry.cfg.Logger.Error(err, "Share cannot be encoded", "cluster", s.cluster, "share", s.name)
	}
	return resource.Resource{Key: s.name, UID: string(s.target.uid), Generation: s.target.generation, Body: raw}
}

// loadShare builds the body of a share when it is sent: a definition may be large.
func (c *registry) loadShare(cluster, key string) (resource.Resource, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shares[shareKey{cluster: cluster, name: key}]
	if s == nil || !s.isAnnounced {
		return resource.Resource{}, false
	}
	return s.newShareResource(), true
}

func (s *share) putResource(kind string, r resource.Resource) {
	if err := s.source(kind).Put(r); err != nil {
		s.registry.cfg.Logger.Error(err, "Share cannot be published", "cluster", s.cluster, "kind", kind, "key", r.Key)
	}
}

// republish publishes everything to sources that may be new.
func (s *share) republish() {
	if _, ok := s.source(wire.KindShare).Ref(s.name); ok || !s.isAnnounced {
		return
	}
	clear(s.entries)
	s.updateAllUse()
	s.fence = ""
	if s.isPublished {
		s.publishObjects()
	}
	s.publishShare()
}

// withdraw withdraws all that is published of a share.
func (s *share) withdraw() {
	if s.scope != nil {
		s.registry.removeFromScope(s, s.scope)
		s.scope = nil
	}
	s.source(wire.KindShare).Delete(s.name)
	s.withdrawFence()
	for name := range s.entries {
		s.source(wire.KindSharedObject).Delete(s.objectKey(name))
	}
	for _, r := range s.requests {
		r.dropPending()
	}
	s.use.account.Close()
	clear(s.entries)
	clear(s.requests)
	clear(s.beyondQuota)
	s.isAnnounced, s.isPublished = false, false
	s.registry.statusQueue.Add(s.name)
}

// largeObjectError names the first object that is too large; empty for none.
func (s *share) largeObjectError() string {
	if len(s.large) == 0 {
		return ""
	}
	name := slices.Min(slices.Collect(maps.Keys(s.large)))
	return fmt.Sprintf("hub: object %q is too large to be shared: %d bytes, limit is %d", name, s.large[name], wire.MaxSharedContent)
}
