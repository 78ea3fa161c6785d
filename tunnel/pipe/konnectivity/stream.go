// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/spokelet/spokelet/tunnel/bufconn"
)

// streamBuffers bounds what waits in each direction of a stream, in buffers of package
// bufpool.
const streamBuffers = 16

// stream is one end of the stream of a pipe.
type stream struct {
	bufconn.Conn
	closeOnce sync.Once
	done      chan struct{} // closed after Close or fail
}

func newStream(local, remote bufconn.Addr) *stream {
	return &stream{Conn: bufconn.New(local, remote, streamBuffers), done: make(chan struct{})}
}

// Close closes both directions. What was written before is still sent; what was
// delivered and not read is dropped.
func (s *stream) Close() error {
	s.In.CloseRead(net.ErrClosed)
	s.Out.CloseWrite(io.EOF)
	s.closeOnce.Do(func() { close(s.done) })
	return nil
}

// fail closes both directions because of the far end: reads return what was delivered
// and then err, writes return err at once.
func (s *stream) fail(err error) {
	// The reader last: who read the error finds the rest closed.
	s.Out.CloseRead(err)
	s.closeOnce.Do(func() { close(s.done) })
	s.In.CloseWrite(err)
}

func (s *stream) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// streamEnd is the error of a stream that ended and not by its own Close. who
// ended it, as far as is known, and reason, which may be nil, say why. It
// wraps io.ErrUnexpectedEOF and never io.EOF.
func streamEnd(who string, reason error) error {
	if reason == nil || errors.Is(reason, io.EOF) {
		return fmt.Errorf("%s: %w", who, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%s: %w: %w", who, io.ErrUnexpectedEOF, reason)
}
