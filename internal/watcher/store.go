// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StoreHandler is a [Handler] for a store that must never see half of a fresh start: it gets the
// initial state at once, and then each change.
type StoreHandler[K comparable, V any] struct {
	// Read returns the key and the value of an object; false for one that is not stored.
	Read func(metav1.Object) (K, V, bool)
	// Replace sets all that there is.
	Replace func(map[K]V)
	// Set and Delete change one value; Delete gets the last one.
	Set, Delete func(K, V)
	// Log says what the API server refuses to list; Name is that of what is watched.
	Log  logr.Logger
	Name string

	// initial is what the initial events brought; nil when they have ended.
	initial map[K]V
}

// HandleEvent sets or deletes a value.
func (s *StoreHandler[K, V]) HandleEvent(obj metav1.Object, deleted bool) {
	key, value, ok := s.Read(obj)
	switch {
	case !ok:
	case s.initial != nil && deleted:
		delete(s.initial, key)
	case s.initial != nil:
		s.initial[key] = value
	case deleted:
		s.Delete(key, value)
	default:
		s.Set(key, value)
	}
}

// StartSync collects the initial events.
func (s *StoreHandler[K, V]) StartSync() { s.initial = map[K]V{} }

// FinishSync replaces the store's content by what was collected.
func (s *StoreHandler[K, V]) FinishSync(string) {
	s.Replace(s.initial)
	s.initial = nil
}

// HandleDenied logs why nothing is known for now.
func (s *StoreHandler[K, V]) HandleDenied(err error) {
	s.Log.Error(err, "cannot watch", "what", s.Name)
}
