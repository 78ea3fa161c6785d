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

	"github.com/spokelet/spokelet/internal/testing/testca"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/konnectivity"
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

func startDirect(ctx context.Context, a *testca.Authority) (*direct, error) {
	cert, err := a.Issue(identity.Hub{ID: a.HubID}.URI(), nil)
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

// startSession runs the hub's end and an agent, as the two processes have them, and
// waits for the session. line, if not nil, is between them.
func startSession(ctx context.Context, a *testca.Authority, line *Line) (*session, error) {
	server, err := newServer(a)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	agent, err := newAgent(a, listener.Addr().String(), line)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	running, cancel := context.WithCancel(ctx)
	var ends sync.WaitGroup
	ends.Go(func() { _ = server.Serve(running, listener) }) // A failure shows as a session that does not come.
	ends.Go(func() { _ = agent.Run(running) })
	stop := func() {
		cancel()
		ends.Wait()
	}
	s, err := waitForSession(ctx, server)
	if err != nil {
		stop()
		return nil, errors.Join(err, agent.Status().Err)
	}
	return &session{session: s, stop: stop}, nil
}

// waitForSession returns the first session.
func waitForSession(ctx context.Context, server *tunnel.Server) (*tunnel.Session, error) {
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

func newServer(a *testca.Authority) (*tunnel.Server, error) {
	cert, err := a.Issue(identity.Hub{ID: a.HubID}.URI(), nil)
	if err != nil {
		return nil, err
	}
	return tunnel.NewServer(tunnel.ServerConfig{
		TLS:       func() (*tls.Certificate, *x509.CertPool, error) { return cert, a.Pool, nil },
		HubID:     a.HubID,
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

func newAgent(a *testca.Authority, address string, line *Line) (*tunnel.Agent, error) {
	cluster := a.NewCluster("spoke1")
	cert, err := a.Issue(cluster.URI(), nil)
	if err != nil {
		return nil, err
	}
	return tunnel.NewAgent(tunnel.AgentConfig{
		Address:       address,
		Credentials:   &credentials{cert: cert, authority: a},
		Doors:         map[string]http.Handler{tunnel.DoorKube: newHandler()},
		KubeSystemUID: identity.NewID(),
		DialPipe: func(ctx context.Context, c pipe.DialConfig) (pipe.Link, error) {
			if line != nil {
				c.DialContext = line.DialContext
			}
			return konnectivity.Dial(ctx, c)
		},
	})
}

// credentials are an agent's, never renewed.
type credentials struct {
	cert      *tls.Certificate
	authority *testca.Authority
}

// Certificate returns the one certificate.
func (c *credentials) Certificate() (*tls.Certificate, *x509.CertPool, string, error) {
	return c.cert, c.authority.Pool, c.authority.HubID, nil
}

// NewRequest refuses.
func (*credentials) NewRequest(context.Context) ([]byte, error) { return nil, errRenewal }

// Renewed refuses.
func (*credentials) Renewed(context.Context, []byte, []byte) error { return errRenewal }
