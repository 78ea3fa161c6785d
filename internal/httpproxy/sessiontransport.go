// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// switchTimeout is how long a cluster may take to answer an upgrade.
	switchTimeout = 30 * time.Second
	// maxSwitchHeader bounds the header of that answer, in bytes, together with
	// those of all 1xx answers before it, which are dropped.
	maxSwitchHeader = 256 << 10
)

// NewSessionTransport returns a transport for upgrades to a cluster, each over a raw
// stream of a session that dial opens. What the cluster answers is bounded in time and
// size.
func NewSessionTransport(dial func(context.Context) (net.Conn, error)) http.RoundTripper {
	return sessionTransport{dial}
}

type sessionTransport struct {
	dial func(context.Context) (net.Conn, error)
}

func (t sessionTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := t.dial(r.Context())
	if err != nil {
		return nil, err
	}
	res, err := (&http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		ResponseHeaderTimeout:  switchTimeout,
		MaxResponseHeaderBytes: maxSwitchHeader,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	}).RoundTrip(r)
	if err != nil {
		abort(conn) // the transport has not, if r was not sent
		return nil, err
	}
	if body, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = &sessionConn{ReadWriteCloser: body, stream: conn}
	}
	return res, nil
}

// sessionConn is a switched connection with the methods of the raw stream that
// http.Transport hides.
type sessionConn struct {
	io.ReadWriteCloser
	stream net.Conn
}

// CloseWrite ends the client's direction in order.
func (c *sessionConn) CloseWrite() error {
	if half, ok := c.stream.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errHalfClosed
}

// Abort ends the stream so that the cluster sees an error.
func (c *sessionConn) Abort(error) { abort(c.stream) }

// feed has the stream read src by itself, if it can; see tunnel.Session.Dial.
func (c *sessionConn) feed(src net.Conn, ended func(error)) bool {
	f, ok := c.stream.(interface {
		Feed(src interface {
			io.Reader
			SetReadDeadline(t time.Time) error
		}, ended func(error))
	})
	if ok {
		f.Feed(src, ended)
	}
	return ok
}
