// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//nolint:staticcheck // net/http, which is recommended instead, has no ping and takes no connection made elsewhere
package tunnel

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"golang.org/x/net/http2"
)

// clientConn is the hub's end of one HTTP/2 connection. Nothing dials another
// one in its place.
type clientConn = http2.ClientConn

// newClientConn begins HTTP/2 on the hub's end of a session.
func newClientConn(conn net.Conn, l Limits) (*clientConn, error) {
	transport, err := http2.ConfigureTransports(&http.Transport{
		DisableCompression:     true, // bytes pass as they are
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              maxFrame,
			MaxReceiveBufferPerStream:     l.StreamWindow,
			MaxReceiveBufferPerConnection: connectionWindow,
			StrictMaxConcurrentRequests:   true,
		},
	})
	if err != nil {
		return nil, err
	}
	return transport.NewClientConn(conn)
}

// agentHTTP2 serves the agent's ends.
type agentHTTP2 struct {
	base   *http.Server // limits
	server *http2.Server
}

func newAgentHTTP2(l Limits) (*agentHTTP2, error) {
	base := newHTTPServer(nil)
	base.ErrorLog = log.New(io.Discard, "", 0) // panics and protocol errors are the peer's to see
	base.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          l.Streams + streamSlack,
		MaxReadFrameSize:              maxFrame,
		MaxReceiveBufferPerStream:     l.StreamWindow,
		MaxReceiveBufferPerConnection: connectionWindow,
		// The hub pings; silence longer than that is asked about.
		SendPingTimeout: l.PingInterval + l.PingTimeout,
		PingTimeout:     l.PingTimeout,
	}
	server := &http2.Server{}
	if err := http2.ConfigureServer(base, server); err != nil {
		return nil, fmt.Errorf("HTTP/2: %w", err)
	}
	return &agentHTTP2{base: base, server: server}, nil
}

// serve runs HTTP/2 until the connection ends.
func (a *agentHTTP2) serve(ctx context.Context, conn net.Conn, h http.Handler) {
	a.server.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, BaseConfig: a.base, Handler: h})
}
