// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	caller      caller
	server      *server.ProxyServer
	dialTimeout time.Duration
	patience    time.Duration

	// ctx is cancelled by end alone, so that whoever sees it cancelled finds
	// the reason.
	ctx    context.Context
	cancel context.CancelFunc
	// registered is closed when the proxy server can reach the agent, which is
	// then the backend.
	registered chan struct{}
	backend    *server.Backend
	done       chan struct{}

	// slot is held by a front end from its dial until the proxy server has let
	// go of it.
	slot chan struct{}

	mu   sync.Mutex
	live *frontend
	err  error // why done is closed
}

var _ pipe.Pipe = (*hubPipe)(nil)

func newHubPipe(config HubConfig, c caller) *hubPipe {
	p := &hubPipe{
		caller:      c,
		dialTimeout: config.DialTimeout,
		patience:    config.Patience,
		registered:  make(chan struct{}),
		done:        make(chan struct{}),
		slot:        make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(c.ctx))
	p.server = server.NewProxyServer(config.HubID,
		[]proxystrategies.ProxyStrategy{proxystrategies.ProxyStrategyDefault}, 1,
		&server.AgentTokenAuthenticationOptions{}, xfrChannelSize)
	only := &registry{pipe: p}
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
	f, err := newFrontend(p)
	if err != nil {
		<-p.slot
		return nil, err
	}
	p.mu.Lock()
	p.live = f
	p.mu.Unlock()
	if p.ended() { // Before the lock, and so without this front end.
		f.fail(streamEnd("pipe", p.reason()))
	}
	go p.proxy(f)
	return f.dial(ctx)
}

// acquire takes the slot. It waits for a predecessor that has ended and is
// being cleared away, not for one that is in use.
func (p *hubPipe) acquire(ctx context.Context) error {
	if p.ended() {
		return p.reason()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.slot <- struct{}{}:
		return nil
	default:
	}
	if p.busy() {
		return pipe.ErrBusy
	}
	select {
	case p.slot <- struct{}{}:
		return nil
	case <-p.done:
		return p.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// current returns the front end of the stream, if there is one.
func (p *hubPipe) current() *frontend {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

func (p *hubPipe) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live == nil || !p.live.ended()
}

// proxy runs the proxy server's half of a front end.
func (p *hubPipe) proxy(f *frontend) {
	defer func() { <-p.slot }()
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
		return p.reason()
	}
}

// Done is closed when the agent's connection has ended.
func (p *hubPipe) Done() <-chan struct{} { return p.done }

// Close closes the agent's TCP connection.
func (p *hubPipe) Close() error {
	p.end(pipe.ErrClosed)
	return nil
}

// end ends the pipe once, for the first reason given.
func (p *hubPipe) end(reason error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = reason
		close(p.done)
	}
	live := p.live
	p.mu.Unlock()
	if !first {
		return
	}
	p.cancel()
	// The error of closing TCP says nothing: the connection is gone either way.
	_ = p.caller.connection.close()
	if live != nil {
		live.fail(streamEnd("pipe", reason))
	}
}

func (p *hubPipe) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *hubPipe) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *hubPipe) name() string {
	return p.caller.peer.Cluster.Name + "/" + p.caller.peer.Process
}

// streamEnd is the error of a stream that ended and not by its own Close. who
// ended it, as far as is known, and reason, which may be nil, say why. It
// wraps io.ErrUnexpectedEOF and never io.EOF.
func streamEnd(who string, reason error) error {
	if reason == nil || errors.Is(reason, io.EOF) {
		return fmt.Errorf("%s: %w", who, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%s: %w: %w", who, io.ErrUnexpectedEOF, reason)
}

// address names one end of a pipe's stream.
type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }
