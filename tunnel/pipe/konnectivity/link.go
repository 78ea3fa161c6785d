// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// maxWaitingStreams is how many streams may wait for Accept.
const maxWaitingStreams = 16

// link is the agent's end of one connection.
type link struct {
	config   pipe.DialConfig
	conn     net.Conn
	accepted chan *stream

	// ctx ends with the link; it is the context of the agent's stream.
	ctx       context.Context
	cancel    context.CancelFunc
	connTaken atomic.Bool
	// serving is closed when the agent reads its stream.
	serving   chan struct{}
	serveOnce sync.Once
	done      chan struct{}

	mu  sync.Mutex
	err error // why done is closed
}

var _ pipe.Link = (*link)(nil)

func newLink(conn net.Conn, config pipe.DialConfig) *link {
	l := &link{
		config:   config,
		conn:     conn,
		accepted: make(chan *stream, maxWaitingStreams),
		serving:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Accept returns the next stream that the hub opened.
func (l *link) Accept() (net.Conn, error) {
	select {
	case <-l.done:
	case conn := <-l.accepted:
		return conn, nil
	}
	return nil, fmt.Errorf("link to %s: %w", l.config.Address, l.Err())
}

// enqueue queues a stream for Accept, and returns false when there is no room.
func (l *link) enqueue(conn *stream) bool {
	select {
	case l.accepted <- conn:
		return true
	default:
		return false
	}
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
	l.closeWith(pipe.ErrClosed)
	return nil
}

// closeWith closes the link. The first reason counts.
func (l *link) closeWith(reason error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = reason
		close(l.done)
	}
	l.mu.Unlock()
	if first {
		l.cancel()
		_ = closeRaw(l.conn) // Gone either way.
	}
}

func (l *link) closeAsLost() {
	l.closeWith(fmt.Errorf("%w: connection closed", pipe.ErrLost))
}

// closeRaw closes the connection under TLS if it can be reached: a closing
// alert would wait for a peer who does not read.
func closeRaw(conn net.Conn) error {
	if under, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return under.NetConn().Close()
	}
	return conn.Close()
}
