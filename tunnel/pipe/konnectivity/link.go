// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// link is the agent's end of one connection.
type link struct {
	config   AgentConfig
	conn     net.Conn
	listener *sessionListener

	// ctx ends with the link; it is the context of the agent's stream.
	ctx        context.Context
	cancel     context.CancelFunc
	handedOver atomic.Bool
	// serving is closed when the agent reads its stream, served when it has
	// read the end of it.
	serving, served       chan struct{}
	serveOnce, servedOnce sync.Once
	done                  chan struct{}

	mu    sync.Mutex
	err   error // why done is closed
	conns []net.Conn
}

var _ pipe.Link = (*link)(nil)

func newLink(conn net.Conn, listener *sessionListener, config AgentConfig) *link {
	l := &link{
		config:   config,
		conn:     conn,
		listener: listener,
		serving:  make(chan struct{}),
		served:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Accept returns the next stream that the hub opened.
func (l *link) Accept() (net.Conn, error) {
	conn, err := l.listener.accept()
	if err != nil {
		l.end(fmt.Errorf("%w: session socket: %w", pipe.ErrLost, err))
		return nil, fmt.Errorf("link to %s: %w", l.config.Address, l.Err())
	}
	c := &acceptedConn{Conn: conn, link: l}
	if !l.track(c) {
		_ = conn.Close()
		return nil, fmt.Errorf("link to %s: %w", l.config.Address, l.Err())
	}
	return c, nil
}

// Done is closed when the connection to the hub has ended.
func (l *link) Done() <-chan struct{} { return l.done }

// Err says why Done is closed.
func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close closes the TCP connection and the streams on it.
func (l *link) Close() error {
	l.end(pipe.ErrClosed)
	return nil
}

// end ends the link once, for the first reason given. The streams must be
// closed here: the agent's reader may wait for one of them to take its bytes,
// and would not see that the connection has ended.
func (l *link) end(reason error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = reason
	conns := l.conns
	l.conns = nil
	close(l.done)
	l.mu.Unlock()

	l.cancel()
	// Errors of closing say nothing: all of it is gone either way.
	_ = l.listener.close()
	for _, conn := range conns {
		_ = conn.Close()
	}
	_ = closeRaw(l.conn)
}

// wait returns when the link has ended and the agent, if it ever read its
// stream, has read the end: to stop it before, would leave its goroutines
// waiting for each other.
func (l *link) wait() {
	<-l.done
	select {
	case <-l.serving:
		<-l.served
	default:
	}
}

func (l *link) connClosed() {
	l.end(fmt.Errorf("%w: connection closed", pipe.ErrLost))
}

func (l *link) track(c *acceptedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.conns = append(l.conns, c.Conn)
	return true
}

func (l *link) forget(c *acceptedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = remove(l.conns, c.Conn)
}

// closeRaw closes the connection under TLS if it can be reached: a closing
// alert would wait for a peer who does not read.
func closeRaw(conn net.Conn) error {
	if under, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return under.NetConn().Close()
	}
	return conn.Close()
}

// acceptedConn is one stream at the agent.
type acceptedConn struct {
	net.Conn
	link *link
}

// Read returns bytes of the hub. The end of the socket is no clean end: it is
// the same whether the hub closed the stream or was lost.
func (c *acceptedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = pipe.StreamEnd("hub", c.link.Err())
	}
	return n, err
}

// Close closes the stream.
func (c *acceptedConn) Close() error {
	c.link.forget(c)
	return c.Conn.Close()
}

// LocalAddr names the agent process.
func (c *acceptedConn) LocalAddr() net.Addr { return pipe.Addr(c.link.config.Process) }

// RemoteAddr names the hub.
func (c *acceptedConn) RemoteAddr() net.Addr { return pipe.Addr(c.link.config.Address) }
