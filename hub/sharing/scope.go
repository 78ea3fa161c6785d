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

// replacedBy tells whether it is of a deletion, and an object has taken the name since.
func (t tombstone) replacedBy(o *object) bool { return t.uid != "" && !t.unselected && t.uid != o.uid }

// scope is a namespace of a feed as far as shares need it. Its fields are guarded by
// Controller.mu.
type scope struct {
	feed      *feed
	namespace string
	// uid is that of the namespace.
	uid    types.UID
	shares map[*share]struct{}

	// objects are those that there are, by name. read: they are all there are, as of
	// version or later.
	objects map[string]*object
	read    bool
	version string
	// fresh are those of a start of the feed that is not complete; nil outside one, and
	// where the start had begun before the scope did.
	fresh map[string]*object
	// vanished are those that the watch reported as deleted, and of which nobody knows yet
	// whether their namespace went with them.
	vanished map[string]tombstone
	// problem is of a namespace that was found to be going. There is no way back. refusal
	// is that of the latest list.
	problem, refusal *wire.ShareProblem

	// guards counts requests whose answers may be older than deletions, and deletedAt has
	// the versions of these while there are any.
	guards    int
	deletedAt map[string]string
}

func newScope(f *feed, at place) *scope {
	return &scope{
		feed: f, namespace: at.namespace, uid: at.uid, shares: map[*share]struct{}{},
		objects: map[string]*object{}, vanished: map[string]tombstone{}, deletedAt: map[string]string{},
	}
}

// trouble is why nothing is shared in the scope.
func (s *scope) trouble() *wire.ShareProblem {
	switch {
	case s.problem != nil:
		return s.problem
	case s.refusal != nil:
		return s.refusal
	}
	return s.feed.problem
}

// guard keeps the versions of deletions until it is released, so that an answer which is
// older does not bring back what was deleted.
func (s *scope) guard() { s.guards++ }

func (s *scope) release() {
	if s.guards--; s.guards == 0 {
		clear(s.deletedAt)
	}
}

// knows tells whether a version is one that the last list was later than: the watch may
// be behind the list of a namespace.
func (s *scope) knows(version string) bool { return s.read && !newer(version, s.version) }

// note keeps the version of a deletion.
func (s *scope) note(name, version string) {
	if s.guards > 0 {
		s.deletedAt[name] = version
	}
}

// take keeps an object, unless there is a later one or it was deleted since.
func (s *scope) take(name string, o *object) bool {
	old := s.objects[name]
	if old != nil && !newer(o.version, old.version) {
		return false
	}
	if at, ok := s.deletedAt[name]; ok && newer(at, o.version) {
		return false
	}
	s.objects[name] = o.after(old)
	delete(s.vanished, name)
	return true
}

// drop removes an object that the watch reported as deleted.
func (s *scope) drop(name string, uid types.UID, version string) bool {
	s.note(name, version)
	old := s.objects[name]
	if old == nil || old.uid != uid && newer(old.version, version) {
		return false // there is another of the name already
	}
	delete(s.objects, name)
	if s.read && s.trouble() == nil {
		s.vanished[name] = tombstone{uid: uid, generation: number(version)}
	}
	return true
}

// merge takes a list of all objects, of a version. What is newer than that came by the
// answers to requests and stays, but for a server that has gone back in time.
func (s *scope) merge(list map[string]*object, version string, restored bool) {
	for name, old := range s.objects {
		o := list[name]
		switch {
		case o == nil && (restored || !newer(old.version, version)):
			delete(s.objects, name)
		case o != nil && (restored || newer(o.version, old.version)):
			s.objects[name] = o.after(old)
		}
	}
	for name, o := range list {
		if s.objects[name] != nil {
			continue
		}
		if at, ok := s.deletedAt[name]; !ok || restored || newer(o.version, at) {
			s.objects[name] = o
		}
	}
	for name := range s.vanished {
		if restored || s.objects[name] != nil {
			delete(s.vanished, name)
		}
	}
	s.read, s.version, s.refusal = true, version, nil
}

// latest is a version at which everything is known.
func (s *scope) latest() int64 { return max(number(s.version), number(s.feed.version)) }
