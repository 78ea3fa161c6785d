// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"sync"
	"time"
)

// gate bounds the connections that have not shown a client certificate: how
// many there are, how many come from one address, and how long they last. One
// too many is closed as soon as it is accepted; waiting instead would let those
// who do nothing hold up everyone.
type gate struct {
	net.Listener
	limits  Limits
	refused func()

	mu    sync.Mutex
	total int
	hosts map[string]int
}

func newGate(l net.Listener, limits Limits, refused func()) *gate {
	return &gate{Listener: l, limits: limits, refused: refused, hosts: map[string]int{}}
}

// Accept returns the next connection within the bounds.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := g.admit(conn); admitted != nil {
			return admitted, nil
		}
		g.refused()
		_ = conn.Close()
	}
}

func (g *gate) admit(conn net.Conn) *gatedConn {
	host := hostOf(conn.RemoteAddr())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= g.limits.Unauthenticated || g.hosts[host] >= g.limits.UnauthenticatedPerHost {
		return nil
	}
	g.total++
	g.hosts[host]++
	c := &gatedConn{Conn: conn, gate: g, host: host}
	c.timer = time.AfterFunc(g.limits.UnauthenticatedLifetime, func() { _ = c.Close() })
	return c
}

func (g *gate) leave(c *gatedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.timer.Stop() // under mu, as admit sets it: it may be the timer that calls
	g.total--
	g.hosts[c.host]--
	if g.hosts[c.host] == 0 {
		delete(g.hosts, c.host)
	}
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// gatedConn counts as unauthenticated until it is closed or known.
type gatedConn struct {
	net.Conn
	gate  *gate
	host  string
	timer *time.Timer
	once  sync.Once
}

// authenticated takes the connection out of the count.
func (c *gatedConn) authenticated() {
	c.once.Do(func() { c.gate.leave(c) })
}

// Close closes the connection.
func (c *gatedConn) Close() error {
	c.authenticated()
	return c.Conn.Close()
}
