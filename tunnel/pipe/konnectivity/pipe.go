// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// xfrChannelSize is how many packets may wait inside the proxy server before
// each end's own queue.
const xfrChannelSize = 10

// hubPipe is one connected agent process: its own proxy server, which knows
// one agent, on its own TCP connection.
type hubPipe struct {
	agent       admittedAgent
	server      *server.ProxyServer
	dialTimeout time.Duration
	patience    time.Duration

	// ctx is cancelled by closeWith alone, which sets the reason first.
	ctx    context.Context
	cancel context.CancelFunc
	// registered is closed when the proxy server can reach the agent, which is
	// then the backend.
	registered chan struct{}
	backend    *server.Backend
	done       chan struct{}

	// dialSlot is held by a front end from its dial until the proxy server has
	// released it.
	dialSlot chan struct{}

	mu      sync.Mutex
	current *frontend
	err     error // why done is closed
}

var _ pipe.Pipe = (*hubPipe)(nil)

func newHubPipe(config HubConfig, c admittedAgent) *hubPipe {
	p := &hubPipe{
		agent:       c,
		dialTimeout: config.DialTimeout,
		patience:    config.Patience,
		registered:  make(chan struct{}),
		done:        make(chan struct{}),
		dialSlot:    make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(c.ctx))
	p.server = server.NewProxyServer(config.HubID,
		[]proxystrategies.ProxyStrategy{proxystrategies.ProxyStrategyDefault}, 1,
		&server.AgentTokenAuthenticationOptions{}, xfrChannelSize)
	only := &singleBackend{pipe: p}
	p.server.BackendManagers[0], p.server.Readiness = only, only
	return p
}

// Dial opens the stream to the agent process.
func (p *hubPipe) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.dialTimeout)
	defer cancel()
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("pipe to %s: dial: %w", p.name(), err)
	}
	return conn, nil
}

func (p *hubPipe) dial(ctx context.Context) (net.Conn, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	f := newFrontend(p)
	p.mu.Lock()
	p.current = f
	p.mu.Unlock()
	if p.isClosed() { // Before the lock, and so without this front end.
		f.fail(streamEnd("pipe", p.closeReason()))
	}
	go p.runProxyServer(f)
	return f.dial(ctx)
}

// acquire takes the slot. It waits for a predecessor that has ended and is
// being cleared away, not for one that is in use.
func (p *hubPipe) acquire(ctx context.Context) error {
	if p.isClosed() {
		return p.closeReason()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.dialSlot <- struct{}{}:
		return nil
	default:
	}
	if p.isBusy() {
		return pipe.ErrBusy
	}
	select {
	case p.dialSlot <- struct{}{}:
		return nil
	case <-p.done:
		return p.closeReason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// currentFrontend returns the front end of the stream, if there is one.
func (p *hubPipe) currentFrontend() *frontend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *hubPipe) isBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current == nil || !p.current.conn.isClosed()
}

// runProxyServer runs the proxy server's half of a front end.
func (p *hubPipe) runProxyServer(f *frontend) {
	defer func() { <-p.dialSlot }()
	err := p.server.Proxy(f)
	f.fail(streamEnd("proxy server", err))
}

// send sends a packet to the agent. It waits while the agent does not read, and
// is freed by the end of the pipe.
func (p *hubPipe) send(packet *client.Packet) error {
	select {
	case <-p.registered:
		return p.backend.Send(packet)
	case <-p.done:
		return p.closeReason()
	}
}

// Done is closed when the agent's connection has ended.
func (p *hubPipe) Done() <-chan struct{} { return p.done }

// Close closes the agent's TCP connection.
func (p *hubPipe) Close() error {
	p.closeWith(pipe.ErrClosed)
	return nil
}

// closeWith closes the pipe. The first reason counts.
func (p *hubPipe) closeWith(reason error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = reason
		close(p.done)
	}
	live := p.current
	p.mu.Unlock()
	if !first {
		return
	}
	p.cancel()
	// Closed either way, whatever the error.
	_ = p.agent.connection.close()
	if live != nil {
		live.fail(streamEnd("pipe", reason))
	}
}

func (p *hubPipe) isClosed() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *hubPipe) closeReason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *hubPipe) name() string {
	return p.agent.peer.Cluster.Name + "/" + p.agent.peer.Process
}
