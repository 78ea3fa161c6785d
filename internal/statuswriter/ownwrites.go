// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// OwnWrites remembers what the last write of each object left in it, until the cache is
// seen to have that. It is safe for concurrent use; the zero value is ready.
type OwnWrites[K comparable, S any] struct {
	mu     sync.Mutex
	writes map[K]ownWrite[S] // guarded by mu
}

type ownWrite[S any] struct {
	version string
	state   S
}

// Record stores what a write left in an object, and the version that it made. The response
// to an earlier write that comes late is ignored.
func (o *OwnWrites[K, S]) Record(key K, version string, state S) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(version, o.writes[key].version); err == nil && order < 0 {
		return
	}
	if o.writes == nil {
		o.writes = map[K]ownWrite[S]{}
	}
	o.writes[key] = ownWrite[S]{version: version, state: state}
}

// After returns what the last write left in an object, if that came after a version of it.
// Otherwise the write is forgotten.
func (o *OwnWrites[K, S]) After(key K, version string) (state S, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.writes[key]
	if !ok {
		return state, false
	}
	if order, err := resourceversion.CompareResourceVersion(version, last.version); err != nil || order < 0 {
		return last.state, true
	}
	delete(o.writes, key)
	return state, false
}

// Forget drops what is known of an object.
func (o *OwnWrites[K, S]) Forget(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.writes, key)
}

// Len returns the number of objects whose last write the cache was not seen to have.
func (o *OwnWrites[K, S]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.writes)
}
