// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"time"
)

// deadline is a point in time that waiters can select on and that can be
// moved while they wait. Use newDeadline.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{}
}

func newDeadline() *deadline {
	return &deadline{expired: make(chan struct{})}
}

// set moves the deadline; the zero time removes it.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // The timer fired: its function closes the channel it was given.
	}
	d.timer = nil
	passed := isClosed(d.expired)
	wait := time.Until(t)
	switch {
	case !t.IsZero() && wait <= 0:
		if !passed {
			close(d.expired)
		}
		return
	case passed:
		d.expired = make(chan struct{})
	}
	if !t.IsZero() {
		expired := d.expired
		d.timer = time.AfterFunc(wait, func() { close(expired) })
	}
}

// wait returns a channel that is closed when the deadline has passed. Setting
// a later deadline before that keeps the channel.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
