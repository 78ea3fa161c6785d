// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"sync"
)

// sharedTask runs something for as long as at least one view needs it.
type sharedTask struct {
	run        func(context.Context)
	goroutines *sync.WaitGroup
	// ctx ends what runs at the latest. It is set before the first user.
	ctx context.Context

	mu     sync.Mutex
	users  int                // guarded by mu
	cancel context.CancelFunc // guarded by mu; ends what runs
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

// release removes a user. It does not wait for the end of what ran for the last one.
func (d *sharedTask) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
	if d.users == 0 {
		d.cancel()
	}
}
