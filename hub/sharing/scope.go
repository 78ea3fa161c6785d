// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

// tombstone is of an object that was deleted, or is not selected any more.
type tombstone struct {
	uid types.UID
	// generation is the number of the version at which that was so.
	generation int64
	unselected bool
}

// isReplacedBy tells whether it is of a deletion, and an object has taken the name since.
func (t tombstone) isReplacedBy(o *object) bool {
	return t.uid != "" && !t.unselected && t.uid != o.uid
}

// scope is a namespace of a feed as far as shares need it. Its fields are guarded by
// Controller.mu.
type scope struct {
	feed      *objectWatch
	namespace string
	// uid is that of the namespace.
	uid    types.UID
	shares map[*share]struct{}

	// objects are those that there are, by name. read: they are all there are, as of
	// version or later.
	objects  map[string]*object
	isListed bool
	version  string
	// pendingList are those of a start of the feed that is not complete; nil outside one, and
	// where the start had begun before the scope did.
	pendingList map[string]*object
	// unverified are those that the watch reported as deleted, and of which nobody knows yet
	// whether their namespace went with them.
	unverified map[string]tombstone
	// problem is of a namespace that was found to be going. There is no way back. refusal
	// is that of the latest list.
	problem, refusal *wire.ShareProblem

	// deletionKeepers counts requests whose answers may be older than deletions, and deletedAt has
	// the versions of these while there are any.
	deletionKeepers int
	deletedAt       map[string]string
}

func newScope(f *objectWatch, at place) *scope {
	return &scope{
		feed: f, namespace: at.namespace, uid: at.uid, shares: map[*share]struct{}{},
		objects: map[string]*object{}, unverified: map[string]tombstone{}, deletedAt: map[string]string{},
	}
}

// findProblem is why nothing is shared in the scope.
func (s *scope) findProblem() *wire.ShareProblem {
	switch {
	case s.problem != nil:
		return s.problem
	case s.refusal != nil:
		return s.refusal
	}
	return s.feed.problem
}

// keepDeletions keeps the versions of deletions until it is released, so that an answer which is
// older does not bring back what was deleted.
func (s *scope) keepDeletions() { s.deletionKeepers++ }

func (s *scope) releaseDeletions() {
	if s.deletionKeepers--; s.deletionKeepers == 0 {
		clear(s.deletedAt)
	}
}

// isOutdated tells whether a version is one that the last list was later than: the watch may
// be behind the list of a namespace.
func (s *scope) isOutdated(version string) bool { return s.isListed && !isNewer(version, s.version) }

// recordDeletion keeps the version of a deletion.
func (s *scope) recordDeletion(name, version string) {
	if s.deletionKeepers > 0 {
		s.deletedAt[name] = version
	}
}

// putObject keeps an object, unless there is a later one or it was deleted since.
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

// deleteObject removes an object that the watch reported as deleted.
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

// mergeList takes a list of all objects, of a version. What is newer than that came by the
// answers to requests and stays, but for a server that has gone back in time.
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

// latestVersion is a version at which everything is known.
func (s *scope) latestVersion() int64 {
	return max(versionNumber(s.version), versionNumber(s.feed.version))
}
