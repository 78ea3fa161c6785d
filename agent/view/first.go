// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import "sync"

// firstAnswers calls complete once each view that the hub had when the engine began has
// an answer. A source that is complete earlier would have the hub drop the answers that
// an engine before this one gave, and all of them would be sent again.
type firstAnswers struct {
	complete func()

	mu sync.Mutex
	// All below are guarded by mu.
	pending        map[string]struct{} // keys of views
	synced, called bool
}

// expect adds a view that the hub has.
func (f *firstAnswers) expect(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.synced {
		f.pending[key] = struct{}{}
	}
}

// done removes a view that was answered, or is gone.
func (f *firstAnswers) done(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pending, key)
	f.check()
}

// sync ends the enumeration of the views that the hub has.
func (f *firstAnswers) sync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
	f.check()
}

// check completes what is complete; f.mu is held.
func (f *firstAnswers) check() {
	if f.synced && !f.called && len(f.pending) == 0 {
		f.called = true
		f.complete()
	}
}
