// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// HubOptions is what the suite asks of a hub.
type HubOptions struct {
	HubID       string
	TLS         *tls.Config
	Handler     pipe.Handler
	Admit       pipe.Admit
	DialTimeout time.Duration
	Patience    time.Duration
	PerCluster  int
}

// AgentOptions is what the suite asks of an agent.
type AgentOptions struct {
	Address     string
	TLS         *tls.Config
	Process     string
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// Kind is a pipe under test.
type Kind struct {
	// Serve serves agents on the listener until the test has ended.
	Serve func(tb testing.TB, listener net.Listener, options HubOptions)
	// Dial connects an agent.
	Dial func(ctx context.Context, options AgentOptions) (pipe.Link, error)
}

// Hub is a running hub and what reached its handler.
type Hub struct {
	Authority *Authority
	Address   string
	// Pipes has a pipe for every call of the handler, which lasts until the
	// pipe or the test has ended.
	Pipes chan Connected

	kind Kind
}

// Connected is one call of the handler.
type Connected struct {
	pipe.Pipe
	Peer pipe.Peer
	// Release makes the handler return.
	Release func()
}

// Start starts a hub. change, if not nil, alters the options.
func Start(tb testing.TB, kind Kind, change func(*HubOptions)) *Hub {
	tb.Helper()
	authority := NewAuthority(tb)
	h := &Hub{Authority: authority, Pipes: make(chan Connected, 1024), kind: kind}
	options := HubOptions{
		HubID:       authority.HubID,
		TLS:         authority.HubTLS(tb),
		Handler:     pipe.HandlerFunc(h.serve),
		Admit:       func(context.Context, identity.Cluster) error { return nil },
		DialTimeout: patience,
		Patience:    patience,
	}
	if change != nil {
		change(&options)
	}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	h.Address = listener.Addr().String()
	kind.Serve(tb, listener, options)
	return h
}

func (h *Hub) serve(ctx context.Context, peer pipe.Peer, p pipe.Pipe) {
	ctx, release := context.WithCancel(ctx)
	defer release()
	h.Pipes <- Connected{Pipe: p, Peer: peer, Release: release}
	<-ctx.Done()
}

// Agent returns the options of an agent of a new cluster named store1, and the
// cluster. change, if not nil, alters them.
func (h *Hub) Agent(tb testing.TB, change func(*AgentOptions)) AgentOptions {
	tb.Helper()
	cert := h.Authority.Issue(tb, h.Authority.Cluster("store1").URI(), nil)
	options := AgentOptions{Address: h.Address, TLS: h.Authority.AgentTLS(cert), Process: "agent-1"}
	if change != nil {
		change(&options)
	}
	return options
}

// Dial connects an agent and closes its link with the test.
func (h *Hub) Dial(tb testing.TB, options AgentOptions) (pipe.Link, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	link, err := h.kind.Dial(ctx, options)
	if err == nil {
		tb.Cleanup(func() { _ = link.Close() })
	}
	return link, err
}

// Connect connects an agent and returns both ends.
func (h *Hub) Connect(tb testing.TB, options AgentOptions) (Connected, pipe.Link) {
	tb.Helper()
	link, err := h.Dial(tb, options)
	if err != nil {
		tb.Fatal(err)
	}
	return h.Next(tb), link
}

// Next returns the next pipe that reached the handler.
func (h *Hub) Next(tb testing.TB) Connected {
	tb.Helper()
	return receive(tb, h.Pipes, "a pipe")
}

// Open dials a stream and returns both of its ends, which are closed with the
// test.
func Open(tb testing.TB, p pipe.Pipe, link pipe.Link) (hub, agent net.Conn) {
	tb.Helper()
	type accepted struct {
		conn net.Conn
		err  error
	}
	c := make(chan accepted, 1)
	go func() {
		conn, err := link.Accept()
		c <- accepted{conn, err}
	}()
	hub, err := p.Dial(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	a := receive(tb, c, "a stream at the agent")
	if a.err != nil {
		tb.Fatal(a.err)
	}
	tb.Cleanup(func() {
		_ = hub.Close()
		_ = a.conn.Close()
	})
	return hub, a.conn
}

// receive receives or fails the test.
func receive[T any](tb testing.TB, c <-chan T, what string) T {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		tb.Fatalf("waited %v for %s", patience, what)
		panic("not reached")
	}
}
