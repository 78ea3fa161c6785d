// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "sync"

// closing keeps the bytes for a connection and its close apart. The agent
// hands bytes over on a channel that another of its goroutines closes at the
// same time, and recovers from the panic; the order that it lacks is made here,
// where both pass: the close waits until the bytes are handed over, and no
// bytes pass after it. Use newClosing.
type closing struct {
	mu     sync.Mutex
	idle   *sync.Cond
	busy   int64              // connection whose bytes the agent hands over, or 0
	closed map[int64]struct{} // connections that the agent closed in this link
}

func newClosing() *closing {
	c := &closing{closed: map[int64]struct{}{}}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// deliver says whether bytes may be handed over. They are until rest.
func (c *closing) deliver(connectID int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.closed[connectID]; ok {
		return false
	}
	c.busy = connectID
	return true
}

// rest says that the agent waits for its next packet.
func (c *closing) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = 0
	c.idle.Broadcast()
}

// close lets no more bytes pass to a connection and waits for those that are
// being handed over. They are on their way out: the agent closes a connection
// when its far end has closed, and then discards what it cannot write.
func (c *closing) close(connectID int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed[connectID] = struct{}{}
	for c.busy == connectID {
		c.idle.Wait()
	}
}
