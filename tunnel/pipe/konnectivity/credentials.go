// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// AuthInfo is what peer.Peer holds on connections made with Credentials: the
// state of TLS, and the connection itself, which gRPC does not hand out.
type AuthInfo struct {
	credentials.TLSInfo
	connection *connection
}

// Watched may be implemented by the connections of a listener, to observe their
// progress.
type Watched interface {
	// Authenticated is called when TLS is done and the peer has proved what its
	// certificate says, if it showed one. An error closes the connection.
	Authenticated(state tls.ConnectionState) error
	// HoldsToken is called when a peer that showed no certificate has shown a join token.
	HoldsToken()
	// Claimed is called when the connection carries a pipe.
	Claimed()
}

// connection is the TCP connection under one gRPC transport.
type connection struct {
	raw net.Conn
	// hasPipe is set by the first agent stream: one connection, one pipe.
	hasPipe atomic.Bool
}

func (c *connection) reportClaimed() {
	if w, ok := c.raw.(Watched); ok {
		w.Claimed()
	}
}

// closeSoon closes TCP after the peer had time to read the refusal.
func (c *connection) closeSoon() {
	time.AfterFunc(refusalGrace, func() { _ = c.close() })
}

// close closes TCP without a closing alert of TLS, which would wait for a peer that
// does not read.
func (c *connection) close() error { return c.raw.Close() }

// Credentials returns the server's transport credentials for TLS. A gRPC
// server on which a Hub is registered must use them: a Hub refuses streams of
// connections that it could not close.
func Credentials(config *tls.Config) credentials.TransportCredentials {
	return serverCredentials{credentials.NewTLS(config)}
}

type serverCredentials struct {
	credentials.TransportCredentials
}

func (c serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	tlsInfo, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil, nil, errors.New("TLS handshake has no TLS state")
	}
	if w, ok := raw.(Watched); ok {
		if err := w.Authenticated(tlsInfo.State); err != nil {
			return nil, nil, err
		}
	}
	return conn, AuthInfo{TLSInfo: tlsInfo, connection: &connection{raw: raw}}, nil
}

func (c serverCredentials) Clone() credentials.TransportCredentials {
	return serverCredentials{c.TransportCredentials.Clone()}
}

// VerifiedLeaf returns the client certificate of the connection that a gRPC
// method was called on, and false when none was given or verified.
func VerifiedLeaf(ctx context.Context) (*x509.Certificate, bool) {
	info, ok := authInfo(ctx)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil, false
	}
	return info.State.VerifiedChains[0][0], true
}

// MarkTokenHolder marks the connection of a gRPC call: its peer, which showed no
// certificate, holds a join token.
func MarkTokenHolder(ctx context.Context) {
	if info, ok := authInfo(ctx); ok {
		if w, ok := info.connection.raw.(Watched); ok {
			w.HoldsToken()
		}
	}
}

func authInfo(ctx context.Context) (AuthInfo, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return AuthInfo{}, false
	}
	info, ok := p.AuthInfo.(AuthInfo)
	return info, ok
}
