// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

// tombstone is of an object that was deleted, or is no longer selected.
type tombstone struct {
	uid types.UID
	// generation is the number of the version at which that happened.
	generation int64
	unselected bool
}

// isReplacedBy reports whether an object was created again after its deletion.
func (t tombstone) isReplacedBy(o *object) bool {
	return t.uid != "" && !t.unselected && t.uid != o.uid
}

// scope has the objects of one namespace of a watch. Its fields are guarded by registry.mu.
type scope struct {
	feed      *objectWatch
	namespace string
	// uid is the namespace's.
	uid    types.UID
	shares map[*share]struct{}

	// objects are those that exist, by name. isListed: they are all, as of version or later.
	objects  map[string]*object
	isListed bool
	version  string
	// pendingList are the objects of a list that is under way; nil outside one, and where the
	// list had begun before the scope existed.
	pendingList map[string]*object
	// unverified are objects whose deletion the watch has reported, before it is known whether
	// the namespace or the definition is being deleted.
	unverified map[string]tombstone
	// problem is that the namespace is being deleted, which is final. refusal is the problem of
	// the latest list.
	problem, refusal *wire.ShareProblem

	// deletionKeepers counts requests whose responses may be older than deletions, and
	// deletedAt has the versions of these while there are any.
	deletionKeepers int
	deletedAt       map[string]string
}

func newScope(f *objectWatch, at place) *scope {
	return &scope{
		feed: f, namespace: at.namespace, uid: at.uid, shares: map[*share]struct{}{},
		objects: map[string]*object{}, unverified: map[string]tombstone{}, deletedAt: map[string]string{},
	}
}

// findProblem returns why nothing is shared in the scope; nil if all is.
func (s *scope) findProblem() *wire.ShareProblem {
	switch {
	case s.problem != nil:
		return s.problem
	case s.refusal != nil:
		return s.refusal
	}
	return s.feed.problem
}

// keepDeletions keeps the versions of deletions until releaseDeletions, so that an older
// response does not bring a deleted object back.
func (s *scope) keepDeletions() { s.deletionKeepers++ }

func (s *scope) releaseDeletions() {
	if s.deletionKeepers--; s.deletionKeepers == 0 {
		clear(s.deletedAt)
	}
}

// isOutdated reports whether a version is older than the last list: the watch may lag behind
// it.
func (s *scope) isOutdated(version string) bool { return s.isListed && !isNewer(version, s.version) }

// recordDeletion keeps the version of a deletion while a request needs it.
func (s *scope) recordDeletion(name, version string) {
	if s.deletionKeepers > 0 {
		s.deletedAt[name] = version
	}
}

// putObject stores an object, unless there is a later version or it was deleted since.
func (s *scope) putObject(name string, o *object) bool {
	old := s.objects[name]
	if old != nil && !isNewer(o.version, old.version) {
		return false
	}
	if at, ok := s.deletedAt[name]; ok && isNewer(at, o.version) {
		return false
	}
	s.objects[name] = o.reuse(old)
	delete(s.unverified, name)
	return true
}

// deleteObject removes an object whose deletion the watch has reported.
func (s *scope) deleteObject(name string, uid types.UID, version string) bool {
	s.recordDeletion(name, version)
	old := s.objects[name]
	if old == nil || old.uid != uid && isNewer(old.version, version) {
		return false // there is another of the name already
	}
	delete(s.objects, name)
	if s.isListed && s.findProblem() == nil {
		s.unverified[name] = tombstone{uid: uid, generation: versionNumber(version)}
	}
	return true
}

// mergeList replaces the objects by those of a list. Later versions, which came with responses
// to requests, stay, unless the API server was restored from a backup.
func (s *scope) mergeList(list map[string]*object, version string, restored bool) {
	for name, old := range s.objects {
		o := list[name]
		switch {
		case o == nil && (restored || !isNewer(old.version, version)):
			delete(s.objects, name)
		case o != nil && (restored || isNewer(o.version, old.version)):
			s.objects[name] = o.reuse(old)
		}
	}
	for name, o := range list {
		if s.objects[name] != nil {
			continue
		}
		if at, ok := s.deletedAt[name]; !ok || restored || isNewer(o.version, at) {
			s.objects[name] = o
		}
	}
	for name := range s.unverified {
		if restored || s.objects[name] != nil {
			delete(s.unverified, name)
		}
	}
	s.isListed, s.version, s.refusal = true, version, nil
}

// latestVersion returns a version at which all objects are known.
func (s *scope) latestVersion() int64 {
	return max(versionNumber(s.version), versionNumber(s.feed.version))
}
