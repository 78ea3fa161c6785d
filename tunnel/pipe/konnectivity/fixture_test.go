// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/internal/testing/testca"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

const (
	// patience is how long tests wait for what must happen; nothing waits that long
	// when all is well.
	patience = 20 * time.Second
	// soon is a deadline that is meant to pass.
	soon = 20 * time.Millisecond
	// filling is a time in which a writer fills the buffers of a stream that nobody reads.
	filling = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.New(upstream))
	goleak.VerifyTestMain(m)
}

// testHub is a running hub and the pipes that reached its handler.
type testHub struct {
	authority *testca.Authority
	address   string
	// pipes has a pipe for every call of the handler, which lasts until the pipe or the
	// test has ended.
	pipes chan connectedPipe
}

// connectedPipe is one call of the handler.
type connectedPipe struct {
	pipe.Pipe
	peer pipe.Peer
	// release makes the handler return.
	release func()
}

// startHub starts a hub. change, if not nil, alters its configuration.
func startHub(tb testing.TB, change func(*HubConfig)) *testHub {
	tb.Helper()
	h := &testHub{authority: newAuthority(tb), pipes: make(chan connectedPipe, 1024)}
	config := HubConfig{
		HubID: h.authority.HubID, Handler: pipe.HandlerFunc(h.servePipe), Admit: admitAll,
		DialTimeout: patience, Patience: patience,
	}
	if change != nil {
		change(&config)
	}
	hub, err := NewHub(config)
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer(append(hub.ServerOptions(), grpc.Creds(Credentials(hubTLS(tb, h.authority))))...)
	hub.Register(server)
	h.address = serveGRPC(tb, server)
	return h
}

// serveGRPC serves on a port of the loopback until the test has ended.
func serveGRPC(tb testing.TB, server *grpc.Server) (address string) {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	tb.Cleanup(func() {
		server.Stop()
		// A test that ends at once may stop the server before it serves.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			tb.Errorf("gRPC server: %v", err)
		}
	})
	return listener.Addr().String()
}

func (h *testHub) servePipe(ctx context.Context, peer pipe.Peer, p pipe.Pipe) {
	ctx, release := context.WithCancel(ctx)
	defer release()
	h.pipes <- connectedPipe{Pipe: p, peer: peer, release: release}
	<-ctx.Done()
}

// agentConfig returns the configuration of an agent of a new cluster named store1.
// change, if not nil, alters it.
func (h *testHub) agentConfig(tb testing.TB, change func(*pipe.DialConfig)) pipe.DialConfig {
	tb.Helper()
	cert := issue(tb, h.authority, h.authority.NewCluster("store1").URI(), nil)
	config := pipe.DialConfig{Address: h.address, TLS: agentTLS(h.authority, cert), Process: "agent-1", DialContext: dialTCP}
	if change != nil {
		change(&config)
	}
	return config
}

func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// dial connects an agent and closes its link with the test.
func (h *testHub) dial(tb testing.TB, config pipe.DialConfig) (pipe.Link, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	link, err := Dial(ctx, config)
	if err == nil {
		tb.Cleanup(func() { _ = link.Close() })
	}
	return link, err
}

// connect connects an agent and returns both ends.
func (h *testHub) connect(tb testing.TB, config pipe.DialConfig) (connectedPipe, pipe.Link) {
	tb.Helper()
	link, err := h.dial(tb, config)
	if err != nil {
		tb.Fatal(err)
	}
	return h.nextPipe(tb), link
}

// nextPipe returns the next pipe that reached the handler.
func (h *testHub) nextPipe(tb testing.TB) connectedPipe {
	tb.Helper()
	return receive(tb, h.pipes, "a pipe")
}

// openStream dials a stream and returns both of its ends, which are closed with the test.
func openStream(tb testing.TB, p pipe.Pipe, link pipe.Link) (hub, agent net.Conn) {
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

func newAuthority(tb testing.TB) *testca.Authority {
	tb.Helper()
	authority, err := testca.New()
	if err != nil {
		tb.Fatal(err)
	}
	return authority
}

func issue(tb testing.TB, a *testca.Authority, uri *url.URL, change func(*x509.Certificate)) tls.Certificate {
	tb.Helper()
	cert, err := a.Issue(uri, change)
	if err != nil {
		tb.Fatal(err)
	}
	return *cert
}

// hubTLS is the configuration of the hub's public port: a client certificate is verified
// if one is given.
func hubTLS(tb testing.TB, a *testca.Authority) *tls.Config {
	tb.Helper()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{issue(tb, a, identity.Hub{ID: a.HubID}.URI(), nil)},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    a.Pool,
	}
}

// agentTLS is the configuration of an agent that presents cert, or none if it is zero.
func agentTLS(a *testca.Authority, cert tls.Certificate) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The hub's certificate has a URI and no DNS name.
		InsecureSkipVerify: true, // verified below
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: a.Pool})
			return err
		},
	}
	if cert.Certificate != nil {
		config.Certificates = []tls.Certificate{cert}
	}
	return config
}
