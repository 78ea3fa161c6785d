// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What happens to clusters as a whole.

// backup is what a store has now, to be restored.
func (s *fakeStore) backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, version := maps.Clone(s.objects), s.version // objects do not change
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.objects, s.version, s.changes, s.compacted = objects, version, nil, version
		s.endWatches()
	}
}

// terminate deletes the namespace, and all in it.
func (s *fakeStore) terminate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark(place{resource: namespaces, name: namespace})
	s.clear()
}

// revive has the namespace be another, that is not being deleted.
func (s *fakeStore) revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{resource: namespaces, name: namespace}
	next := s.objects[at].DeepCopy()
	next.SetDeletionTimestamp(nil)
	s.drop(at)
	s.commit(at, next)
}

// undefine deletes the definition, and all of it.
func (s *fakeStore) undefine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{resource: definitions(), name: widgetsName}
	s.mark(at)
	s.clear()
	s.drop(at)
}

// mark begins a deletion; s.mu is held.
func (s *fakeStore) mark(at place) {
	next := s.objects[at].DeepCopy()
	next.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	s.commit(at, next)
}

// clear deletes all widgets; s.mu is held.
func (s *fakeStore) clear() {
	for _, at := range slices.Collect(maps.Keys(s.objects)) {
		if at.resource == widgets {
			s.drop(at)
		}
	}
}
