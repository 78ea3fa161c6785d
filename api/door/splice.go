// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// errHalfClosed ends a splice whose one side is done and whose other side has
// no way to be told so but a close.
var errHalfClosed = errors.New("stream ended")

// Splice carries bytes between two connections until both directions have
// ended, one has failed or ctx is done, and closes both. A direction that ends
// cleanly is passed on as a half-close where the receiver has one. A failure
// on one side is passed on as a reset of the other, never as a clean end: to
// some protocols on top, a clean end is success.
func Splice(ctx context.Context, a, b io.ReadWriteCloser) {
	stop := context.AfterFunc(ctx, func() {
		abort(a)
		abort(b)
	})
	defer stop()
	done := make(chan error, 2)
	go func() { done <- carry(a, b) }()
	go func() { done <- carry(b, a) }()

	err := <-done
	if err == nil {
		err = <-done
		finish(err, a, b)
		return
	}
	finish(err, a, b)
	// The close above ends the other direction; wait, so that no goroutine
	// outlives the request it served.
	<-done
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

// carry copies src to dst until src ends. Write errors are returned too: they
// mean that dst is gone.
func carry(dst io.Writer, src io.Reader) error {
	// The wrappers hide ReadFrom and WriteTo, which would bring buffers of
	// their own.
	if _, err := io.CopyBuffer(writer{dst}, reader{src}, make([]byte, bufferSize)); err != nil {
		return err
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalfClosed
}

type reader struct{ io.Reader }

type writer struct{ io.Writer }

// abort closes c so that the peer sees an error: a reset where c knows one.
func abort(c io.Closer) {
	switch c := c.(type) {
	case interface{ Abort() error }:
		_ = c.Abort()
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
