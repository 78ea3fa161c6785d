// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import "sync"

// initialSync calls complete once each view that the hub had when the engine began has
// an answer. A source that is complete earlier would have the hub drop the answers that
// an engine before this one gave, and all of them would be sent again.
type initialSync struct {
	complete func()

	mu sync.Mutex
	// All below are guarded by mu.
	pending           map[string]struct{} // keys of views
	synced, completed bool
}

// add adds a view that the hub has.
func (f *initialSync) add(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.synced {
		f.pending[key] = struct{}{}
	}
}

// done removes a view that was answered, or is gone.
func (f *initialSync) done(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pending, key)
	f.completeIfDone()
}

// setSynced ends the enumeration of the views that the hub has.
func (f *initialSync) setSynced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
	f.completeIfDone()
}

// completeIfDone completes what is complete; f.mu is held.
func (f *initialSync) completeIfDone() {
	if f.synced && !f.completed && len(f.pending) == 0 {
		f.completed = true
		f.complete()
	}
}
