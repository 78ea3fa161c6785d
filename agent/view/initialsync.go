// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import "sync"

// initialSync calls complete once every view that the hub had at the start has an answer. If
// the source were complete earlier, the hub would discard the answers of the process before,
// and all of them would be sent again.
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

// done removes a view that was answered or deleted.
func (f *initialSync) done(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pending, key)
	f.completeIfDone()
}

// setSynced is called when the hub has sent all of its views.
func (f *initialSync) setSynced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = true
	f.completeIfDone()
}

// completeIfDone calls complete if no answer is missing. The caller holds f.mu.
func (f *initialSync) completeIfDone() {
	if f.synced && !f.completed && len(f.pending) == 0 {
		f.completed = true
		f.complete()
	}
}
