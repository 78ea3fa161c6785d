// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connlimit bounds the connections of an HTTP server by what their requests have
// shown. Nobody waits behind those who do nothing: beyond a bound a connection is closed for
// the newest, the oldest of the host that has the most of them.
package connlimit

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/quota"
)

// Limits of a listener. Connections that carry an authorized request are not among them:
// the server counts those.
type Limits struct {
	// Unauthorized bounds the connections on which no request was authorized yet, and Callers
	// those on which one was and none is being answered.
	Unauthorized, Idle int
	// UnauthorizedTimeout is what a connection has until its first request is authorized.
	UnauthorizedTimeout time.Duration
}

// Listener accepts connections, and closes those beyond its limits. Use New.
type Listener struct {
	net.Listener
	timeout time.Duration

	mu                 sync.Mutex // guards what is below, and what changes of connections
	unauthorized, idle *quota.Room[*Conn]
}

// New returns a Listener of the connections of another one. Its server has [Context] as
// ConnContext.
func New(l net.Listener, limits Limits) *Listener {
	room := func(places int) *quota.Room[*Conn] { return quota.NewRoom[*Conn](places, places) }
	return &Listener{
		Listener: l, timeout: limits.UnauthorizedTimeout,
		unauthorized: room(limits.Unauthorized), idle: room(limits.Idle),
	}
}

// Accept returns the next connection, as unauthorized.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, listener: l, host: HostOf(conn.RemoteAddr())}
	l.mu.Lock()
	c.timer = time.AfterFunc(l.timeout, func() { _ = c.Close() })
	evicted := c.enter(l.unauthorized)
	l.mu.Unlock()
	evicted.evict()
	return c, nil
}

// Conn is a connection of a Listener.
type Conn struct {
	net.Conn
	listener *Listener
	host     string
	timer    *time.Timer

	// room is what it counts in; nil while it carries authorized requests.
	room     *quota.Room[*Conn]
	requests int
	closed   bool
}

// enter counts it in a room, and returns the connection to be closed for it, or nil. The
// caller holds mu, and calls evict without it.
func (c *Conn) enter(room *quota.Room[*Conn]) (evicted *Conn) {
	evicted, full := room.Add(c.host, c)
	if full {
		evicted.leave()
	}
	c.room = room
	return evicted
}

// leave takes it out of its room. The caller holds mu.
func (c *Conn) leave() {
	c.timer.Stop()
	if c.room != nil {
		c.room.Remove(c.host, c)
		c.room = nil
	}
}

// evict closes a connection that has left; nil is none.
func (c *Conn) evict() {
	if c != nil {
		_ = c.Conn.Close()
	}
}

// markAuthorized moves an unauthorized connection to the idle ones, which may last.
func (c *Conn) markAuthorized() {
	l := c.listener
	l.mu.Lock()
	if c.room != l.unauthorized { // a caller already, or closed
		l.mu.Unlock()
		return
	}
	c.leave()
	evicted := c.enter(l.idle)
	l.mu.Unlock()
	evicted.evict()
}

func (c *Conn) hold() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.leave()
	c.requests++
}

// Release ends what Hold began. Nil is no connection.
func (c *Conn) Release() {
	if c == nil {
		return
	}
	l := c.listener
	l.mu.Lock()
	c.leave()
	c.requests--
	if c.closed || c.requests > 0 {
		l.mu.Unlock()
		return
	}
	evicted := c.enter(l.idle)
	l.mu.Unlock()
	evicted.evict()
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.listener.mu.Lock()
	c.leave()
	c.closed = true
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// Abort closes the connection so that the client sees a reset: TLS is read to its
// end by clients that find none.
func (c *Conn) Abort(error) {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

type key struct{}

// Context is the ConnContext of the [http.Server].
func Context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, key{}, of(conn))
}

func of(conn net.Conn) *Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, _ := conn.(*Conn)
	return c
}

func from(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}

// Host is the host that the connection of a request comes from; see HostOf.
func Host(ctx context.Context) string {
	if c := from(ctx); c != nil {
		return c.host
	}
	return ""
}

// MarkAuthorized records that a request was authorized.
func MarkAuthorized(ctx context.Context) {
	if c := from(ctx); c != nil {
		c.markAuthorized()
	}
}

// Hold records that a request was authorized, and keeps its connection from being closed for
// others until it is released. It returns nil, of which that is true as well, where there is no Listener.
func Hold(ctx context.Context) *Conn {
	c := from(ctx)
	if c != nil {
		c.hold()
	}
	return c
}

// HoldHijacked is the ConnState of a server that hijacks the connections of authorized
// requests alone: they are not closed for others.
func HoldHijacked(conn net.Conn, state http.ConnState) {
	if c := of(conn); c != nil && state == http.StateHijacked {
		c.hold()
	}
}
