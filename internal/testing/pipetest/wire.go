// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("wire is cut")

// Wire is the network between an agent and the hub. It fails when told to.
type Wire struct {
	mu     sync.Mutex
	conns  []net.Conn
	left   int // bytes in both directions until the cut; negative: no limit
	frozen bool
}

// NewWire returns a wire that works. With cutAfter >= 0 it is cut when that
// many bytes have passed, counted in both directions.
func NewWire(cutAfter int) *Wire {
	return &Wire{left: cutAfter}
}

// DialContext connects through the wire.
func (w *Wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	return &wireConn{Conn: conn, wire: w}, nil
}

// Freeze swallows from now on what is sent in either direction.
func (w *Wire) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = true
}

// Cut resets the connections.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut()
}

func (w *Wire) cut() {
	w.left = 0
	for _, conn := range w.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// pass says how many of n bytes may pass, and whether they are swallowed.
func (w *Wire) pass(n int) (allowed int, swallow bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen {
		return n, true
	}
	if w.left < 0 {
		return n, false
	}
	n = min(n, w.left)
	w.left -= n
	return n, false
}

type wireConn struct {
	net.Conn
	wire *Wire
}

// Read reads what passes.
func (c *wireConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		allowed, swallow := c.wire.pass(n)
		if err != nil {
			return n, err
		}
		if swallow {
			continue
		}
		if allowed < n {
			c.wire.Cut()
			return allowed, errCut
		}
		return n, nil
	}
}

// Write writes what passes.
func (c *wireConn) Write(p []byte) (int, error) {
	allowed, swallow := c.wire.pass(len(p))
	if swallow {
		return len(p), nil
	}
	n, err := c.Conn.Write(p[:allowed])
	if err == nil && allowed < len(p) {
		c.wire.Cut()
		err = errCut
	}
	return n, err
}
