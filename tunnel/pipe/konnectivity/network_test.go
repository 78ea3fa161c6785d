// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("network is cut")

// testNetwork is the network between an agent and the hub. It fails when told to.
type testNetwork struct {
	mu     sync.Mutex
	conns  []net.Conn
	left   int // bytes in both directions until the cut; negative: no limit
	frozen bool
}

// newNetwork returns a network that works. With cutAfter >= 0 it is cut when that
// many bytes have passed, counted in both directions.
func newNetwork(cutAfter int) *testNetwork {
	return &testNetwork{left: cutAfter}
}

// dialContext connects through the network.
func (n *testNetwork) dialContext(ctx context.Context, protocol, address string) (net.Conn, error) {
	conn, err := dialTCP(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, conn)
	return &networkConn{Conn: conn, network: n}, nil
}

// freeze swallows from now on what is sent in either direction.
func (n *testNetwork) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = true
}

// cut resets the connections.
func (n *testNetwork) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = 0
	for _, conn := range n.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// pass says how many of n bytes may pass, and whether they are swallowed.
func (n *testNetwork) pass(bytes int) (allowed int, swallow bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen {
		return bytes, true
	}
	if n.left < 0 {
		return bytes, false
	}
	bytes = min(bytes, n.left)
	n.left -= bytes
	return bytes, false
}

type networkConn struct {
	net.Conn
	network *testNetwork
}

// Read reads what passes.
func (c *networkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		allowed, swallow := c.network.pass(n)
		if err != nil {
			return n, err
		}
		if swallow {
			continue
		}
		if allowed < n {
			c.network.cut()
			return allowed, errCut
		}
		return n, nil
	}
}

// Write writes what passes.
func (c *networkConn) Write(p []byte) (int, error) {
	allowed, swallow := c.network.pass(len(p))
	if swallow {
		return len(p), nil
	}
	n, err := c.Conn.Write(p[:allowed])
	if err == nil && allowed < len(p) {
		c.network.cut()
		err = errCut
	}
	return n, err
}
