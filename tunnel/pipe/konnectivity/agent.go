// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// alpn is the protocol that gRPC speaks.
const alpn = "h2"

// syncInterval is how long the client set sleeps before it asks its server
// counter, which holds it until the link has ended.
const syncInterval = time.Millisecond

// Dial connects to the hub once and returns when the hub can reach the agent.
// The context bounds the attempt and not the link. Errors wrap pipe.ErrRefused
// when the hub refused the agent, pipe.ErrLost when the connection broke, or come
// from the network and TLS.
func Dial(ctx context.Context, config pipe.DialConfig) (pipe.Link, error) {
	if config.Address == "" || config.TLS == nil || config.DialContext == nil {
		return nil, errors.New("konnectivity agent: address, TLS and dialer are required")
	}
	if err := validateProcess(config.Process); err != nil {
		return nil, fmt.Errorf("konnectivity agent: %w", err)
	}
	l, err := dial(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", config.Address, err)
	}
	return l, nil
}

func dial(ctx context.Context, config pipe.DialConfig) (*link, error) {
	// TLS here rather than inside gRPC, whose errors are text and which would
	// try again.
	conn, err := dialTLS(ctx, config)
	if err != nil {
		return nil, err
	}
	l := newLink(conn, config)
	l.serve()
	select {
	case <-l.serving:
		return l, nil
	case <-l.Done():
		return nil, l.Err()
	case <-ctx.Done():
		_ = l.Close() // it has nothing to lose
		return nil, ctx.Err()
	}
}

// dialTLS opens the TCP connection and does the TLS handshake for gRPC's protocol.
func dialTLS(ctx context.Context, config pipe.DialConfig) (*tls.Conn, error) {
	raw, err := config.DialContext(ctx, "tcp", config.Address)
	if err != nil {
		return nil, err
	}
	tlsConfig := config.TLS.Clone()
	tlsConfig.NextProtos = []string{alpn}
	conn := tls.Client(raw, tlsConfig)
	err = conn.HandshakeContext(ctx)
	if got := conn.ConnectionState().NegotiatedProtocol; err == nil && got != alpn {
		err = fmt.Errorf("protocol %q negotiated, want %q", got, alpn)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return conn, nil
}

// serve starts the client set, which connects at once and once.
func (l *link) serve() {
	stop := make(chan struct{})
	clients := (&agent.ClientSetConfig{
		// The connection exists: the name is for the :authority header alone.
		Address:         "passthrough:///" + l.config.Address,
		AgentID:         l.config.Process,
		SyncInterval:    syncInterval,
		SyncIntervalCap: syncInterval,
		// The end of the stream is noticed without asking for it.
		ProbeInterval: math.MaxInt64,
		DialOptions:   l.dialOptions(),
	}).NewAgentClientSet(nil, stop)
	clients.SetServerCounter(&holdingCounter{link: l, stop: stop})
	clients.Serve()
}

// holdingCounter answers the client set's first question and keeps it waiting
// for the second answer until the link has ended; then it stops the client
// set. Between the two the client set connects; held, it neither polls nor
// reconnects.
type holdingCounter struct {
	questions int
	link      *link
	stop      chan<- struct{}
}

// Count returns 1.
func (c *holdingCounter) Count() int {
	c.questions++
	if c.questions == 2 {
		<-c.link.done
		close(c.stop)
	}
	return 1
}

func (l *link) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS is on the connection already.
		grpc.WithContextDialer(l.takeConn),
		grpc.WithStreamInterceptor(l.intercept),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithReadBufferSize(readBufferSize),
		grpc.WithWriteBufferSize(writeBufferSize),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	}
}

// takeConn gives gRPC the connection once: one link is one TCP connection.
func (l *link) takeConn(context.Context, string) (net.Conn, error) {
	if !l.connTaken.CompareAndSwap(false, true) {
		return nil, pipe.ErrLost
	}
	return &closeNotifyingConn{Conn: l.conn, closed: l.closeAsLost}, nil
}

// closeNotifyingConn calls closed when gRPC has closed the connection.
type closeNotifyingConn struct {
	net.Conn
	closed func()
}

// Close closes the connection.
func (c *closeNotifyingConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
