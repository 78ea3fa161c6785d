// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcetest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/spokelet/spokelet/tunnel/resource"
)

// Connect serves the agent to the hub as a cluster, until cut is called or the test
// ends. The agent may be connected again after that.
func Connect(t testing.TB, hub *resource.Hub, cluster string, agent *resource.Agent) (cut func()) {
	t.Helper()
	m := &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: agent, Protocols: protocols} //nolint:gosec // its one client is below
	session := &http.Transport{DialContext: m.dial, Protocols: protocols}
	// A test's own context ends before its cleanup, which may need the stream.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(m) })
	running.Go(func() { _ = hub.Run(ctx, cluster, session) })
	cut = sync.OnceFunc(func() {
		cancel()
		session.CloseIdleConnections()
		_ = server.Close()
		running.Wait()
	})
	t.Cleanup(cut)
	return cut
}

// memory is a network of one listener.
type memory struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

// Addr implements net.Listener.
func (m *memory) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }
