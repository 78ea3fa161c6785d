// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// linger is how long a client may go on sending to a backend that has ended.
// Closing at once could reset the connection while the backend's last bytes
// are still on their way.
const linger = 5 * time.Second

var (
	// errHalfClosed ends a splice whose one side is done and whose other side
	// has no way to be told so but a close.
	errHalfClosed = errors.New("stream ended")
	// errReceiver says that it was the receiver that failed, not the sender.
	errReceiver = errors.New("receiver is gone")
	// errCut is why the other side of a failed stream is aborted.
	errCut = errors.New("other side of the stream was cut")
)

// Splice carries bytes between two connections until both directions have
// ended, one has failed or ctx is done, and closes both. A direction that ends
// cleanly is passed on as a half-close where the receiver has one. A failure
// on one side is passed on as a reset of the other, never as a clean end: to
// some protocols on top, a clean end is success.
func Splice(ctx context.Context, client, backend io.ReadWriteCloser) {
	stop := context.AfterFunc(ctx, func() {
		abort(client)
		abort(backend)
	})
	defer stop()
	up, down := make(chan error, 1), make(chan error, 1)
	var both sync.WaitGroup
	both.Go(func() { up <- carry(backend, client) })
	both.Go(func() { down <- carry(client, backend) })
	// Whatever ends one direction closes both, which ends the other: no
	// goroutine outlives the request it served.
	defer both.Wait()

	select {
	case err := <-up:
		if err == nil || errors.Is(err, errReceiver) {
			// The backend goes on, or it has ended and its last bytes say how.
			err = <-down
		}
		finish(err, client, backend)
	case err := <-down:
		if err == nil {
			timer := time.AfterFunc(linger, func() { finish(nil, client, backend) })
			defer timer.Stop()
			<-up //nolint:errcheck // whatever comes of it, the backend's end was clean
		}
		finish(err, client, backend)
	}
}

func finish(err error, a, b io.Closer) {
	if err == nil || errors.Is(err, errHalfClosed) {
		_ = a.Close()
		_ = b.Close()
		return
	}
	abort(a)
	abort(b)
}

// carry copies src to dst until src ends. The error wraps errReceiver when it
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
		err = fmt.Errorf("%w: %w", errReceiver, err)
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
	case *tls.Conn:
		// Closing the TCP connection beneath spares the close-notify, which is
		// TLS's way to say that the end is clean.
		abort(c.NetConn())
		return
	case *net.TCPConn:
		_ = c.SetLinger(0)
	}
	_ = c.Close()
}
