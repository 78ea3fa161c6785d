// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// linger is how long a client may go on sending to a backend that has ended.
// Closing at once could reset the connection while the backend's last bytes
// are still on their way.
const linger = 5 * time.Second

// patience is how long a client that ends the stream itself (ErrKept) may take to
// read it: as long as kubelets let an idle stream live.
const patience = 4 * time.Hour

var (
	// ErrKept is returned by the CloseWrite of a client that is told of no end: it
	// knows it from what it was sent, and closes when it has read it. To close before
	// would destroy what it has not read, or what servers on the way to it hold.
	ErrKept = errors.New("client ends the stream")
	// errHalfClosed ends a splice whose one side is done and whose other side
	// has no way to be told so but a close.
	errHalfClosed = errors.New("stream ended")
	// ErrReceiver says that it was the receiver that failed, not the sender.
	ErrReceiver = errors.New("receiver is gone")
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

	mu      sync.Mutex // guards what is below
	half    bool       // one direction has ended
	settled bool       // how it ends is decided
	cause   error      // what cut it
	linger  *time.Timer
	ended   bool        // both directions have
	reset   *time.Timer // resets a client that was cut off, unless it ends before
}

// begin starts a splice. ended is called once, when it does nothing any more, with
// what cut it, or nil.
func begin(ctx context.Context, client, backend io.ReadWriteCloser, ended func(cause error)) {
	s := &splice{client: client, backend: backend}
	unwatch := context.AfterFunc(ctx, s.cut)
	var going atomic.Int32
	going.Store(2)
	carried := func(backends bool, err error) {
		s.over(backends, err)
		if going.Add(-1) == 0 {
			unwatch()
			s.end()
			ended(s.why())
		}
	}
	if !feed(backend, client, func(err error) {
		if errors.Is(err, ErrReceiver) {
			go func() { carried(false, s.drain(err)) }()
			return
		}
		carried(false, err)
	}) {
		go func() { carried(false, s.drain(carry(backend, client))) }()
	}
	go func() { carried(true, carry(client, backend)) }()
}

// cut ends the splice from the backend's side: what follows the backend's bytes may have a
// word for the client, which a reset would destroy. A client that does not take it in
// time is reset.
func (s *splice) cut() {
	abort(s.backend)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.reset = time.AfterFunc(linger, func() { abort(s.client) })
	}
}

// end is called when neither direction carries anything any more.
func (s *splice) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.reset != nil {
		s.reset.Stop()
	}
}

// feeder is a backend that reads by itself what it is to send. ended is called
// once: with nil when src has ended and so the client's direction, with src's
// error, or with one that wraps ErrReceiver when it takes no more. False: it
// cannot.
type feeder interface {
	Feed(src net.Conn, ended func(error)) bool
}

func feed(backend, client any, ended func(error)) bool {
	f, ok := backend.(feeder)
	src, is := client.(net.Conn)
	return ok && is && f.Feed(src, ended)
}

// drain reads on what the client says to a backend that takes no more, the
// ErrReceiver err, and returns how the client ends. Unread it would turn the end
// of what the client is sent into a reset.
func (s *splice) drain(err error) error {
	if !errors.Is(err, ErrReceiver) {
		return err
	}
	return move(io.Discard, s.client)
}

// over is told how a direction has ended, that of the backend's bytes or that of
// the client's. Whatever ends one for good closes both, which ends the other: no
// goroutine outlives a splice.
func (s *splice) over(backends bool, err error) {
	s.mu.Lock()
	first := !s.half
	s.half = true
	if s.linger != nil {
		s.linger.Stop()
	}
	switch {
	case s.settled:
		s.mu.Unlock()
		return
	case first && backends && (err == nil || errors.Is(err, ErrKept)):
		wait := linger
		if err != nil {
			wait = patience
		}
		s.linger = time.AfterFunc(wait, func() { finish(nil, s.client, s.backend) })
		s.mu.Unlock()
		return
	case first && !backends && err == nil:
		// The backend goes on, or it has ended and its last bytes say how.
		s.mu.Unlock()
		return
	case !first && !backends:
		err = nil // whatever came of it, the backend's end was clean
	}
	s.settled = true
	if !inOrder(err) {
		s.cause = err
	}
	s.mu.Unlock()
	finish(err, s.client, s.backend)
}

// why is what cut the splice.
func (s *splice) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

func inOrder(err error) bool {
	return err == nil || errors.Is(err, errHalfClosed) || errors.Is(err, ErrKept)
}

func finish(err error, a, b io.Closer) {
	if inOrder(err) {
		_ = a.Close()
		_ = b.Close()
		return
	}
	abort(a)
	abort(b)
}

// carry copies src to dst until src ends. The error wraps ErrReceiver when it
// is dst that is gone.
func carry(dst io.Writer, src io.Reader) error {
	if err := move(writer{dst}, src); err != nil {
		return err
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalfClosed
}

// move copies until src ends. Thousands of streams wait for their next byte at
// once, so that what each waits with is small; more is borrowed while there is
// more to read.
func move(dst io.Writer, src io.Reader) error {
	idle := make([]byte, idleSize)
	var lent *[bufferSize]byte
	defer func() { giveBack(lent) }()
	for chunk := idle; ; {
		n, err := src.Read(chunk)
		if n > 0 {
			if _, werr := dst.Write(chunk[:n]); werr != nil {
				return werr
			}
		}
		// Compared, not unwrapped: an error that wraps io.EOF is not a clean end.
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case n < idleSize:
			giveBack(lent)
			lent, chunk = nil, idle
		case lent == nil:
			lent = lend()
			chunk = lent[:]
		}
	}
}

type writer struct{ io.Writer }

func (w writer) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrReceiver, err)
	}
	return n, err
}

// abort closes c so that the peer sees an error: a reset where c knows one, as
// the raw streams of a session do.
func abort(c io.Closer) {
	switch c := c.(type) {
	case interface{ Abort(reason error) }:
		c.Abort(errCut)
		return
	case interface{ NetConn() net.Conn }:
		// Closing the TCP connection beneath a *tls.Conn spares the close-notify,
		// which is TLS's way to say that the end is clean.
		abort(c.NetConn())
		return
	case *net.TCPConn:
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}
