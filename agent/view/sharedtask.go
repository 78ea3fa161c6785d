// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"sync"
)

// sharedTask runs a function for as long as at least one view uses it.
type sharedTask struct {
	run        func(context.Context)
	goroutines *sync.WaitGroup
	// ctx ends the function at the latest. It is set before the first user.
	ctx context.Context

	mu     sync.Mutex
	users  int                // guarded by mu
	cancel context.CancelFunc // guarded by mu
}

// acquire adds a user. The caller makes sure that running is not being waited for yet.
func (d *sharedTask) acquire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users++
	if d.users > 1 {
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	d.cancel = cancel
	d.goroutines.Go(func() { d.run(ctx) })
}

// release removes a user, and cancels the function after the last one without waiting.
func (d *sharedTask) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
	if d.users == 0 {
		d.cancel()
	}
}
