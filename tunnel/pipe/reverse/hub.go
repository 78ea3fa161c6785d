// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//nolint:staticcheck // net/http, which is recommended instead, takes no connection made elsewhere
package reverse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/http2"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

const (
	// alpn keeps the protocol apart from HTTP/2 in the usual direction.
	alpn = "spokelet-reverse"

	processPath = "/process"
	servePath   = "/serve"
	refusePath  = "/refuse"

	processHeader = "Spokelet-Process"
	reasonHeader  = "Spokelet-Reason"

	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// setupTimeout bounds TLS and the requests before a pipe is served.
	setupTimeout = 10 * time.Second

	defaultDialTimeout = 5 * time.Second
	defaultPerCluster  = 16
)

// HubConfig says how a Hub serves agents.
type HubConfig struct {
	// HubID is this hub's id. Required.
	HubID string
	// TLS holds the hub's certificate and verifies those of clients; its
	// protocols are set by NewHub. Required.
	TLS *tls.Config
	// Handler serves the pipes. Required.
	Handler pipe.Handler
	// Admit is asked before anything is made for an agent. Required.
	Admit pipe.Admit
	// Logger gets refused and ended pipes. Discards if zero.
	Logger logr.Logger
	// DialTimeout bounds Dial. 5 s if zero.
	DialTimeout time.Duration
	// PerCluster bounds the pipes of one cluster. 16 if zero.
	PerCluster int
}

// Default returns the configuration with its zero values replaced.
func (c HubConfig) Default() HubConfig {
	if c.Logger.IsZero() {
		c.Logger = logr.Discard()
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.PerCluster == 0 {
		c.PerCluster = defaultPerCluster
	}
	return c
}

// Validate returns an error when the configuration cannot be used.
func (c HubConfig) Validate() error {
	if err := identity.ValidateID(c.HubID); err != nil {
		return fmt.Errorf("reverse hub: %w", err)
	}
	if c.Handler == nil || c.Admit == nil || c.TLS == nil {
		return errors.New("reverse hub: handler, admit and TLS are required")
	}
	if c.DialTimeout < 0 || c.PerCluster < 0 {
		return errors.New("reverse hub: limits must not be negative")
	}
	return nil
}

// Hub is the hub's end of the pipes.
type Hub struct {
	config    HubConfig
	tls       *tls.Config
	gate      *pipe.Gate
	transport *http2.Transport
}

// NewHub returns a Hub.
func NewHub(config HubConfig) (*Hub, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	tlsConfig := config.TLS.Clone()
	tlsConfig.NextProtos = []string{alpn}
	return &Hub{
		config:    config,
		tls:       tlsConfig,
		gate:      pipe.NewGate(config.HubID, config.Admit, config.PerCluster),
		transport: &http2.Transport{ReadIdleTimeout: keepaliveTime, PingTimeout: keepaliveTimeout},
	}, nil
}

// Serve serves agents on the listener until the context ends, and returns when
// all of them have gone. It closes the listener.
func (h *Hub) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reverse hub: %w", err)
		}
		conns.Go(func() { h.serve(ctx, conn) })
	}
}

func (h *Hub) serve(ctx context.Context, raw net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	defer func() { _ = raw.Close() }()
	remote := pipe.Addr(raw.RemoteAddr().String())
	p, leave, err := h.open(ctx, raw, remote)
	if err != nil {
		h.config.Logger.Info("Agent refused", "remote", remote, "reason", err.Error())
		return
	}
	defer leave()
	defer func() { _ = p.Close() }()
	h.config.Handler.ServePipe(p.ctx, p.peer, p)
}

// open takes a connection through TLS and the gate.
func (h *Hub) open(ctx context.Context, raw net.Conn, remote net.Addr) (*hubPipe, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	conn := tls.Server(raw, h.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	p := newHubPipe(raw, h.config.DialTimeout)
	client, err := h.transport.NewClientConn(&watchedConn{Conn: conn, closed: p.lost})
	if err != nil {
		return nil, nil, err
	}
	p.client = client
	process, err := p.process(ctx)
	if err != nil {
		return nil, nil, err
	}
	peer, leave, err := h.gate.Enter(ctx, conn.ConnectionState(), process, remote)
	if err != nil {
		return nil, nil, errors.Join(err, p.tell(ctx, refusePath, pipe.Refusal(err)))
	}
	p.peer = peer
	if err := p.tell(ctx, servePath, nil); err != nil {
		leave()
		return nil, nil, err
	}
	return p, leave, nil
}

// process asks the agent what it calls itself.
func (p *hubPipe) process(ctx context.Context) (string, error) {
	header, err := p.get(ctx, processPath, nil)
	if err != nil {
		return "", err
	}
	return header.Get(processHeader), nil
}

// tell says what became of the agent.
func (p *hubPipe) tell(ctx context.Context, path string, reason error) error {
	header := http.Header{}
	if reason != nil {
		header.Set(reasonHeader, reason.Error())
	}
	_, err := p.get(ctx, path, header)
	return err
}

// get makes a request and returns the header of its answer.
func (p *hubPipe) get(ctx context.Context, path string, header http.Header) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := p.client.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("agent answered %s with %d", path, resp.StatusCode)
	}
	return resp.Header, nil
}

// watchedConn tells when HTTP/2 has closed the connection, for whatever reason.
type watchedConn struct {
	net.Conn
	closed func()
}

// Close closes the connection.
func (c *watchedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
