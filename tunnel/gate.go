// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/konnectivity"
)

// stage is how far a connection of the public port has come. It goes down this
// list, skipping some, and never up; each stage has its bound and its time.
type stage int

const (
	// shaking: TLS is not done, so it may be anybody. A certificate that was
	// shown proves nothing yet: its key speaks last.
	// Limits.Handshakes, Limits.HandshakeTimeout.
	shaking stage = iota
	// anonymous: it showed no certificate and may enrol.
	// Limits.Anonymous, Limits.AnonymousLifetime.
	anonymous
	// tokenHolder: it enrols, and its peer holds a join token. Strangers do not take its
	// place. tokenHoldersPerAnonymous times Limits.Anonymous, from any host;
	// Limits.AnonymousLifetime in all.
	tokenHolder
	// known: it proved to be a cluster and has no pipe yet.
	// Limits.ClusterConnections, Limits.HandshakeTimeout.
	known
	// piped: it carries a pipe, whose session watches it.
	// Limits.ClusterConnections.
	piped
	// gone: it is closed.
	gone
)

// gate bounds the connections of the public port in each stage. A newcomer may
// always come in: it could be an agent, whom nobody may keep out by doing
// nothing. A full room makes place by closing a connection, see quota.Room. A cluster
// that has all of its connections harms itself alone, so there the newcomer is
// closed.
type gate struct {
	net.Listener
	limits Limits
	closed func() // told of each connection that was closed for want of a place

	mu       sync.Mutex                        // guards what is below, and stage and timer of connections
	rooms    map[stage]*quota.Room[*gatedConn] // by host
	clusters map[identity.Cluster]int          // those known and piped
}

// tokenHoldersPerAnonymous is how many connections of token holders there may be for each
// anonymous one. Only who holds a token takes such a place, so that more of them cost what
// an administrator has asked for: a fleet of 1000 clusters may wait for acceptance at
// once, behind one address.
const tokenHoldersPerAnonymous = 4

func newGate(l net.Listener, limits Limits, closed func()) *gate {
	holders := tokenHoldersPerAnonymous * limits.Anonymous
	return &gate{
		Listener: l,
		limits:   limits,
		closed:   closed,
		rooms: map[stage]*quota.Room[*gatedConn]{
			shaking:     quota.NewRoom[*gatedConn](limits.Handshakes, limits.HandshakesPerHost),
			anonymous:   quota.NewRoom[*gatedConn](limits.Anonymous, limits.AnonymousPerHost),
			tokenHolder: quota.NewRoom[*gatedConn](holders, holders),
		},
		clusters: map[identity.Cluster]int{},
	}
}

// Accept returns the next connection.
func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &gatedConn{Conn: conn, gate: g, host: connlimit.HostOf(conn.RemoteAddr())}
	g.mu.Lock()
	c.timer = time.AfterFunc(g.limits.HandshakeTimeout, func() { _ = c.Close() })
	evicted := g.enter(c, shaking)
	g.mu.Unlock()
	g.evict(evicted)
	return c, nil
}

// enter gives a connection a place in a room. The caller holds mu, and calls
// evict without it.
func (g *gate) enter(c *gatedConn, s stage) (evicted *gatedConn) {
	evicted, full := g.rooms[s].Add(c.host, c)
	if full {
		g.leave(evicted)
	}
	c.stage = s
	return evicted
}

// leave ends a connection's stage. The caller holds mu.
func (g *gate) leave(c *gatedConn) {
	switch c.stage {
	case shaking, anonymous, tokenHolder:
		g.rooms[c.stage].Remove(c.host, c)
	case known, piped:
		if g.clusters[c.cluster]--; g.clusters[c.cluster] == 0 {
			delete(g.clusters, c.cluster)
		}
	case gone:
	}
	c.stage = gone
	c.timer.Stop()
}

func (g *gate) becomeAnonymous(c *gatedConn) (evicted *gatedConn, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.stage != shaking {
		return nil, net.ErrClosed
	}
	g.leave(c)
	c.timer.Reset(g.limits.AnonymousLifetime)
	return g.enter(c, anonymous), nil
}

// becomeTokenHolder keeps the time that the connection has.
func (g *gate) becomeTokenHolder(c *gatedConn) (evicted *gatedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.stage != anonymous {
		return nil
	}
	g.rooms[anonymous].Remove(c.host, c)
	return g.enter(c, tokenHolder)
}

func (g *gate) becomeKnown(c *gatedConn, cluster identity.Cluster) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.stage != shaking {
		return net.ErrClosed
	}
	if g.clusters[cluster] >= g.limits.ClusterConnections {
		g.closed()
		return fmt.Errorf("cluster %s: %w", cluster.Name, pipe.ErrTooMany)
	}
	g.leave(c)
	c.timer.Reset(g.limits.HandshakeTimeout)
	c.stage, c.cluster = known, cluster
	g.clusters[cluster]++
	return nil
}

func (g *gate) evict(c *gatedConn) {
	if c == nil {
		return
	}
	g.closed()
	_ = c.Conn.Close() // it has left
}

// gatedConn is a connection of the public port.
type gatedConn struct {
	net.Conn
	gate *gate
	host string

	stage   stage
	timer   *time.Timer // closes the connection when its stage takes too long
	cluster identity.Cluster
}

var _ konnectivity.Watched = (*gatedConn)(nil)

// Authenticated is told that TLS is done. The error says that the connection
// has no place.
func (c *gatedConn) Authenticated(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		evicted, err := c.gate.becomeAnonymous(c)
		c.gate.evict(evicted)
		return err
	}
	cluster, err := identity.ClusterOf(state.PeerCertificates[0]) // publicTLS has verified it
	if err != nil {
		return fmt.Errorf("peer certificate: %w", err)
	}
	return c.gate.becomeKnown(c, cluster)
}

// HoldsToken is told that the peer holds a join token.
func (c *gatedConn) HoldsToken() { c.gate.evict(c.gate.becomeTokenHolder(c)) }

// Claimed is told that the connection carries a pipe.
func (c *gatedConn) Claimed() {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.stage == known {
		c.stage = piped
		c.timer.Stop()
	}
}

// Close closes the connection.
func (c *gatedConn) Close() error {
	c.gate.mu.Lock()
	c.gate.leave(c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
