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

// deleteNamespace deletes the namespace, and all in it.
func (s *fakeStore) deleteNamespace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markDeleting(place{resource: namespaces, name: namespace})
	s.deleteAll()
}

// recreateNamespace has the namespace be another, that is not being deleted.
func (s *fakeStore) recreateNamespace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{resource: namespaces, name: namespace}
	next := s.objects[at].DeepCopy()
	next.SetDeletionTimestamp(nil)
	s.removeObject(at)
	s.commit(at, next)
}

// deleteDefinition deletes the definition, and all of it.
func (s *fakeStore) deleteDefinition() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{resource: definitions(), name: widgetsName}
	s.markDeleting(at)
	s.deleteAll()
	s.removeObject(at)
}

// markDeleting begins a deletion; s.mu is held.
func (s *fakeStore) markDeleting(at place) {
	next := s.objects[at].DeepCopy()
	next.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	s.commit(at, next)
}

// deleteAll deletes all widgets; s.mu is held.
func (s *fakeStore) deleteAll() {
	for _, at := range slices.Collect(maps.Keys(s.objects)) {
		if at.resource == widgets {
			s.removeObject(at)
		}
	}
}
