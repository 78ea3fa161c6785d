// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"sync"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// DialPipe opens a pipe to the hub over a network. It is what
// tunnel.AgentConfig.DialPipe wants.
func (h *Hub) DialPipe(network *Network) func(context.Context, pipe.DialConfig) (pipe.Link, error) {
	return func(ctx context.Context, config pipe.DialConfig) (pipe.Link, error) {
		leaf, err := x509.ParseCertificate(config.TLS.Certificates[0].Certificate[0])
		if err != nil {
			return nil, err
		}
		cluster, err := identity.ClusterOf(leaf)
		if err != nil {
			return nil, err
		}
		if err := h.Server.Admit(ctx, cluster); err != nil {
			return nil, fmt.Errorf("memory pipe: %w", pipe.ErrRefused)
		}
		peer := pipe.Peer{Cluster: cluster, Process: config.Process, Remote: addr("agent"), NotAfter: leaf.NotAfter}
		return h.Serve(network, peer), nil
	}
}

// Serve hands the hub a pipe of a peer, whoever that is, and returns the
// agent's end.
func (h *Hub) Serve(network *Network, peer pipe.Peer) pipe.Link {
	ctx, cancel := context.WithCancel(context.Background())
	m := &memoryPipe{network: network, conns: make(chan net.Conn, 1), ctx: ctx, cancel: cancel}
	h.serving.Go(func() {
		defer func() { _ = m.Close() }()
		h.Server.ServePipe(ctx, peer, m)
	})
	return (*memoryLink)(m)
}

// memoryPipe is both ends of a pipe.
type memoryPipe struct {
	network *Network
	conns   chan net.Conn
	ctx     context.Context
	cancel  context.CancelFunc

	mu   sync.Mutex
	open []net.Conn
}

// Dial opens the byte stream.
func (m *memoryPipe) Dial(ctx context.Context) (net.Conn, error) {
	hub, agent := m.network.Pair()
	m.mu.Lock()
	m.open = append(m.open, hub)
	m.mu.Unlock()
	select {
	case m.conns <- agent:
		return hub, nil
	case <-m.ctx.Done():
		return nil, pipe.ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memoryPipe) Done() <-chan struct{} { return m.ctx.Done() }

func (m *memoryPipe) Close() error {
	m.cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.open {
		_ = conn.Close()
	}
	return nil
}

type memoryLink memoryPipe

// Accept returns the byte stream.
func (l *memoryLink) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("memory pipe: %w", pipe.ErrLost)
	}
}

func (l *memoryLink) Done() <-chan struct{} { return l.ctx.Done() }

func (l *memoryLink) Err() error {
	if l.ctx.Err() != nil {
		return pipe.ErrLost
	}
	return nil
}

func (l *memoryLink) Close() error { return (*memoryPipe)(l).Close() }
