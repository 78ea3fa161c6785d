// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// AgentConfig says how an agent process connects, whatever the pipe is made of.
type AgentConfig struct {
	// Address is the hub's public address, host:port. Required.
	Address string
	// TLS holds the client certificate, the roots and the server's name. Its
	// protocols are set by Connect. Required.
	TLS *tls.Config
	// Process is what the agent process calls itself (ValidateProcess), unique
	// and stable for its life. Required.
	Process string
	// DialContext opens the TCP connection, if need be through a proxy.
	// net.Dialer's if nil.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Default returns the configuration with its zero values replaced.
func (c AgentConfig) Default() AgentConfig {
	if c.DialContext == nil {
		c.DialContext = (&net.Dialer{}).DialContext
	}
	return c
}

// Validate returns an error when the configuration cannot be used.
func (c AgentConfig) Validate() error {
	if c.Address == "" || c.TLS == nil {
		return errors.New("agent: address and TLS are required")
	}
	if err := ValidateProcess(c.Process); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// Connect opens the TCP connection of a defaulted configuration and does the
// TLS handshake, for the one protocol (ALPN). The context bounds both.
func (c AgentConfig) Connect(ctx context.Context, protocol string) (*tls.Conn, error) {
	raw, err := c.DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, err
	}
	config := c.TLS.Clone()
	config.NextProtos = []string{protocol}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != protocol {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS: protocol %q negotiated, want %q", got, protocol)
	}
	return conn, nil
}

// Await returns a link that has begun once serving is closed: the hub can reach
// the agent. Until then the context bounds it. An error wraps the link's or the
// context's and names the hub; the link has then ended.
func (c AgentConfig) Await(ctx context.Context, l Link, serving <-chan struct{}) (Link, error) {
	var err error
	select {
	case <-serving:
		return l, nil
	case <-l.Done():
		err = l.Err()
	case <-ctx.Done():
		_ = l.Close() // it has nothing to lose
		err = ctx.Err()
	}
	return nil, c.Named(err)
}

// Named says which hub an error is of.
func (c AgentConfig) Named(err error) error { return fmt.Errorf("hub %s: %w", c.Address, err) }
