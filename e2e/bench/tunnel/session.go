// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//nolint:staticcheck // net/http, which is recommended instead, cannot be told to keep to one connection
package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/reverse"
)

// connectTimeout bounds how long an agent takes to connect.
const connectTimeout = 30 * time.Second

// errRenewal answers what no benchmark asks for.
var errRenewal = errors.New("certificates of a benchmark are not renewed")

// direct is the baseline: HTTP/2 over TLS on one connection.
type direct struct {
	transport *http2.Transport
	stop      func()
}

func startDirect(ctx context.Context, a *authority) (*direct, error) {
	cert, err := a.issue(identity.Hub{ID: a.hubID}.URI())
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("direct: %w", err)
	}
	server := &http.Server{
		Handler:           newHandler(),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}},
		ReadHeaderTimeout: connectTimeout,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.ServeTLS(listener, "", "") // Always ends with an error, by Close.
	}()
	transport := &http2.Transport{DialTLSContext: func(ctx context.Context, network, _ string, _ *tls.Config) (net.Conn, error) {
		dialer := tls.Dialer{Config: &tls.Config{
			MinVersion:         tls.VersionTLS13,
			NextProtos:         []string{http2.NextProtoTLS},
			InsecureSkipVerify: true, //nolint:gosec // the certificate has no DNS name, and this is a yardstick on loopback
		}}
		return dialer.DialContext(ctx, network, listener.Addr().String())
	}}
	return &direct{transport: transport, stop: func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	}}, nil
}

// session is a live session and all that it runs on.
type session struct {
	session *tunnel.Session
	stop    func()
}

// overKonnectivity starts a session as the hub and the agent have it.
func overKonnectivity(ctx context.Context, a *authority, line *Line) (*session, error) {
	server, err := newServer(a)
	if err != nil {
		return nil, err
	}
	return connect(ctx, a, server, line, server.Serve, nil)
}

// overReverse starts a session over the reverse pipe.
func overReverse(ctx context.Context, a *authority, line *Line) (*session, error) {
	server, err := newServer(a)
	if err != nil {
		return nil, err
	}
	cert, err := a.issue(identity.Hub{ID: a.hubID}.URI())
	if err != nil {
		return nil, err
	}
	hub, err := reverse.NewHub(reverse.HubConfig{
		HubID: a.hubID, Handler: server, Admit: server.Admit,
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert},
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: a.pool,
		},
	})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, c tunnel.PipeConfig) (pipe.Link, error) {
		return reverse.Dial(ctx, reverse.AgentConfig{
			Address: c.Address, TLS: c.TLS, Process: c.Process, DialContext: c.DialContext,
		})
	}
	return connect(ctx, a, server, line, hub.Serve, dial)
}

type serveFunc func(context.Context, net.Listener) error

type dialFunc func(context.Context, tunnel.PipeConfig) (pipe.Link, error)

// connect runs the hub's end and an agent, and waits for the session.
func connect(ctx context.Context, a *authority, server *tunnel.Server, line *Line, serve serveFunc, dial dialFunc) (*session, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	agent, err := newAgent(a, listener.Addr().String(), line, dial)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	running, cancel := context.WithCancel(ctx)
	var ends sync.WaitGroup
	ends.Go(func() { _ = serve(running, listener) }) // A failure shows as a session that does not come.
	ends.Go(func() { _ = agent.Run(running) })
	stop := func() {
		cancel()
		ends.Wait()
	}
	s, err := await(ctx, server)
	if err != nil {
		stop()
		return nil, errors.Join(err, agent.Status().Err)
	}
	return &session{session: s, stop: stop}, nil
}

// await returns the first session.
func await(ctx context.Context, server *tunnel.Server) (*tunnel.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	connected := make(chan *tunnel.Session, 1)
	defer server.Sessions().Subscribe(func(e tunnel.Event) {
		if e.Session != nil {
			select {
			case connected <- e.Session:
			default:
			}
		}
	})()
	select {
	case s := <-connected:
		return s, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no session: %w", ctx.Err())
	}
}

func newServer(a *authority) (*tunnel.Server, error) {
	cert, err := a.issue(identity.Hub{ID: a.hubID}.URI())
	if err != nil {
		return nil, err
	}
	return tunnel.NewServer(tunnel.ServerConfig{
		TLS:       func() (*tls.Certificate, *x509.CertPool, error) { return cert, a.pool, nil },
		HubID:     a.hubID,
		Admission: everyone{},
		Issuer:    everyone{},
	})
}

// everyone admits every cluster.
type everyone struct{}

// Admit admits.
func (everyone) Admit(context.Context, identity.Cluster) error { return nil }

func (everyone) AdmitSpoke(context.Context, identity.Cluster, string) error { return nil }

// Issue refuses.
func (everyone) Issue(context.Context, identity.Cluster, []byte) (chain, bundle []byte, err error) {
	return nil, nil, errRenewal
}

func newAgent(a *authority, address string, line *Line, dial dialFunc) (*tunnel.Agent, error) {
	cluster := identity.Cluster{HubID: a.hubID, Name: "spoke1", ID: identity.NewID()}
	cert, err := a.issue(cluster.URI())
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = tunnel.AgentConfig{}.Default().DialPipe
	}
	return tunnel.NewAgent(tunnel.AgentConfig{
		Address:       address,
		Credentials:   &credentials{cert: cert, authority: a},
		Doors:         map[string]http.Handler{tunnel.DoorKube: newHandler()},
		KubeSystemUID: identity.NewID(),
		DialPipe: func(ctx context.Context, c tunnel.PipeConfig) (pipe.Link, error) {
			if line != nil {
				c.DialContext = line.DialContext
			}
			return dial(ctx, c)
		},
	})
}

// credentials are an agent's, never renewed.
type credentials struct {
	cert      *tls.Certificate
	authority *authority
}

// Certificate returns the one certificate.
func (c *credentials) Certificate() (*tls.Certificate, *x509.CertPool, string, error) {
	return c.cert, c.authority.pool, c.authority.hubID, nil
}

// NewRequest refuses.
func (*credentials) NewRequest(context.Context) ([]byte, error) { return nil, errRenewal }

// Renewed refuses.
func (*credentials) Renewed(context.Context, []byte, []byte) error { return errRenewal }
