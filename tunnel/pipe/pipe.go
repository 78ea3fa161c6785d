// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Pipe is the hub's end of one connected agent process.
type Pipe interface {
	// Dial opens a byte stream to the agent process. Its deadlines and
	// addresses are real. Errors wrap ErrBusy while an earlier stream is open,
	// ErrLost when the agent is gone, ErrClosed after Close, the context's
	// error, or context.DeadlineExceeded when the agent did not answer in time.
	Dial(ctx context.Context) (net.Conn, error)
	// Done is closed when the agent's connection has ended.
	Done() <-chan struct{}
	// Close closes the agent's TCP connection: nothing less frees a wedge.
	Close() error
}

// Peer is who is at the far end of a pipe.
type Peer struct {
	// Cluster comes from the verified certificate.
	Cluster identity.Cluster
	// Process is what the agent process calls itself, unique and stable for
	// its life: routing and logs, never authority.
	Process string
	// Remote is the address that the connection came from.
	Remote net.Addr
	// NotAfter is when the certificate expires.
	NotAfter time.Time
}

// Handler serves pipes. ServePipe is called once for each connected agent
// process, in a goroutine of its own; the context ends with the pipe, and the
// pipe is closed when ServePipe returns.
type Handler interface {
	ServePipe(ctx context.Context, peer Peer, p Pipe)
}

// HandlerFunc is a Handler that is a function.
type HandlerFunc func(ctx context.Context, peer Peer, p Pipe)

// ServePipe calls the function.
func (f HandlerFunc) ServePipe(ctx context.Context, peer Peer, p Pipe) { f(ctx, peer, p) }

// Admit decides whether a cluster may connect, before anything is made for it.
// An error refuses it; its text is not sent to the peer.
type Admit func(ctx context.Context, c identity.Cluster) error

// DialConfig is what an agent process dials a pipe with.
type DialConfig struct {
	// Address is the hub's public address, host:port. Required.
	Address string
	// TLS holds the client certificate, and verifies the hub. Required.
	TLS *tls.Config
	// Process names this connection, unique among those that live. Required.
	Process string
	// DialContext opens the TCP connection, if need be through a proxy. Required.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Link is the agent's end of one pipe: it accepts the streams that the hub
// opens. One link is one TCP connection; it does not reconnect.
type Link interface {
	// Accept returns the next stream. Errors wrap ErrClosed after Close, and
	// ErrLost when the hub is gone.
	Accept() (net.Conn, error)
	// Done is closed when the connection to the hub has ended.
	Done() <-chan struct{}
	// Err is nil until Done is closed, then says why.
	Err() error
	// Close closes the TCP connection and the streams on it.
	Close() error
}
