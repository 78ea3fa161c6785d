// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spokelet/spokelet/internal/bufpool"
)

// linger is how long a client may go on sending to a backend that has ended.
// Closing at once could reset the connection while the backend's last bytes
// are still on their way.
const linger = 5 * time.Second

var (
	// errHalfClosed ends a splice when one direction has ended and the receiver has no
	// half-close.
	errHalfClosed = errors.New("stream ended")
	// errCut is why the other side of a failed stream is aborted.
	errCut = errors.New("other side of the stream was cut")
)

// splice carries bytes between two connections until both directions have
// ended, one has failed or ctx is done, and closes both. A direction that ends
// cleanly is passed on as a half-close where the receiver has one. A failure
// on one side is passed on as a reset of the other, never as a clean end: to
// some protocols on top, a clean end is success.
//
// Nobody waits for it: of thousands that are idle, each costs the goroutines of
// its two directions and no other.
type splice struct {
	client, backend io.ReadWriteCloser

	mu      sync.Mutex  // guards what is below
	oneDone bool        // one direction has ended
	closing bool        // both connections are being closed
	cause   error       // what cut the splice
	linger  *time.Timer // closes both once the backend has ended
	done    bool        // both directions have ended
	reset   *time.Timer // resets a client that does not take the last bytes of a cut
}

// start starts the splice. from is what the backend's bytes are read from. onEnd is
// called once, when nothing is carried any more, with what cut the splice, or nil.
func (s *splice) start(ctx context.Context, from io.Reader, onEnd func(cause error)) {
	stopWatching := context.AfterFunc(ctx, s.cut)
	var running atomic.Int32
	running.Store(2)
	end := func(fromBackend bool, err error) {
		s.endDirection(fromBackend, err)
		if running.Add(-1) == 0 {
			stopWatching()
			onEnd(s.finish())
		}
	}
	if !feed(s.backend, s.client, func(err error) {
		if errors.Is(err, bufpool.ErrWrite) {
			go func() { end(false, s.drainClient(err)) }()
			return
		}
		end(false, err)
	}) {
		go func() { end(false, s.drainClient(copyDirection(s.backend, s.client))) }()
	}
	go func() { end(true, copyDirection(s.client, from)) }()
}

// cut ends the splice from the backend's side: what is read behind the backend's bytes may
// hold an error for the client, which a reset would destroy. A client that does not take it
// in time is reset.
func (s *splice) cut() {
	abort(s.backend)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.reset = time.AfterFunc(linger, func() { abort(s.client) })
	}
}

// finish is called when both directions have ended. It returns what cut the splice.
func (s *splice) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.reset != nil {
		s.reset.Stop()
	}
	return s.cause
}

// feed has a backend read by itself what it sends, if it can. ended is called once:
// with nil when the client has ended its direction, with the error of its connection,
// or with one that wraps bufpool.ErrWrite when the backend takes no more.
func feed(backend, client any, ended func(error)) bool {
	b, ok := backend.(*sessionConn)
	src, isConn := client.(net.Conn)
	return ok && isConn && b.feed(src, ended)
}

// drainClient reads on, after a bufpool.ErrWrite, what the client sends to a backend that
// takes no more, and returns how the client ends. Unread bytes would turn the end of what
// the client is sent into a reset.
func (s *splice) drainClient(err error) error {
	if !errors.Is(err, bufpool.ErrWrite) {
		return err
	}
	return bufpool.Copy(io.Discard, s.client)
}

// endDirection handles the end of one direction. The first that is no half-close closes
// both connections, which ends the other direction: no goroutine outlives a splice.
func (s *splice) endDirection(fromBackend bool, err error) {
	s.mu.Lock()
	first := !s.oneDone
	s.oneDone = true
	if s.linger != nil {
		s.linger.Stop()
	}
	switch {
	case s.closing:
		s.mu.Unlock()
		return
	case first && err == nil:
		// A client that has ended leaves the backend to go on, for as long as it likes.
		if fromBackend {
			s.linger = time.AfterFunc(linger, func() { closeBoth(nil, s.client, s.backend) })
		}
		s.mu.Unlock()
		return
	case !first && !fromBackend:
		err = nil // the backend's end was clean, whatever became of the client
	}
	s.closing = true
	if !isCleanEnd(err) {
		s.cause = err
	}
	s.mu.Unlock()
	closeBoth(err, s.client, s.backend)
}

func isCleanEnd(err error) bool { return err == nil || errors.Is(err, errHalfClosed) }

func closeBoth(err error, a, b io.Closer) {
	if isCleanEnd(err) {
		_ = a.Close()
		_ = b.Close()
		return
	}
	abort(a)
	abort(b)
}

// copyDirection copies src to dst until src ends, and half-closes dst. The error wraps
// bufpool.ErrWrite when it is dst that has failed.
func copyDirection(dst io.Writer, src io.Reader) error {
	if err := bufpool.Copy(dst, src); err != nil {
		return err
	}
	half, ok := dst.(interface{ CloseWrite() error })
	if !ok {
		return errHalfClosed
	}
	err := half.CloseWrite()
	if errors.Is(err, errors.ErrUnsupported) {
		return errHalfClosed
	}
	return err
}

// abort closes c so that the peer sees an error: a reset where c has one, as the raw
// streams of a session do.
func abort(c io.Closer) {
	switch c := c.(type) {
	case interface{ Abort(reason error) }:
		c.Abort(errCut)
		return
	case interface{ NetConn() net.Conn }:
		// Closing the TCP connection beneath a *tls.Conn omits the close-notify,
		// which is TLS's way to say that the end is clean.
		abort(c.NetConn())
		return
	case *net.TCPConn:
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}
