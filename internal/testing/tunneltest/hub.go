// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"
	"testing"

	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// Hub is a hub's end with an authority of its own.
type Hub struct {
	Server    *tunnel.Server
	Authority *Authority

	serving sync.WaitGroup

	mu    sync.Mutex
	cert  *tls.Certificate
	admit func(identity.Cluster, string) error
	issue func(identity.Cluster) error
}

// NewHub starts a hub without a public port. change, if not nil, alters its
// configuration. It drains when the test ends, after its agents.
func NewHub(tb testing.TB, change func(*tunnel.ServerConfig)) *Hub {
	tb.Helper()
	authority := NewAuthority(tb)
	return NewHubWith(tb, authority, authority.Issue(tb, identity.Hub{ID: authority.HubID}.URI()), change)
}

// NewHubWith is NewHub with an authority and a certificate that other hubs may have had: to
// make them takes as long as half a handshake.
func NewHubWith(tb testing.TB, authority *Authority, cert *tls.Certificate, change func(*tunnel.ServerConfig)) *Hub {
	tb.Helper()
	h := &Hub{Authority: authority, cert: cert}
	config := tunnel.ServerConfig{
		TLS:       h.tls,
		HubID:     authority.HubID,
		Admission: h,
		Issuer:    h,
		Version:   "test",
	}
	if change != nil {
		change(&config)
	}
	server, err := tunnel.NewServer(config)
	if err != nil {
		tb.Fatal(err)
	}
	h.Server = server
	tb.Cleanup(func() {
		server.Drain("test is over")
		h.serving.Wait()
	})
	return h
}

func (h *Hub) tls() (*tls.Certificate, *x509.CertPool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cert, h.Authority.Pool, nil
}

// UseCertificate replaces the hub's own certificate.
func (h *Hub) UseCertificate(cert *tls.Certificate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cert = cert
}

// UseAuthority replaces the hub's authority and its own certificate.
func (h *Hub) UseAuthority(authority *Authority, cert *tls.Certificate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Authority, h.cert = authority, cert
}

// OnAdmit replaces both steps of the admission, which admits everyone by default.
// kubeSystemUID is empty when a pipe connects. f may be called by many
// goroutines at once, and may wait.
func (h *Hub) OnAdmit(f func(c identity.Cluster, kubeSystemUID string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.admit = f
}

// Admit is tunnel.Admission's.
func (h *Hub) Admit(ctx context.Context, c identity.Cluster) error { return h.AdmitSpoke(ctx, c, "") }

// AdmitSpoke is tunnel.Admission's.
func (h *Hub) AdmitSpoke(_ context.Context, c identity.Cluster, uid string) error {
	h.mu.Lock()
	admit := h.admit
	h.mu.Unlock()
	if admit == nil {
		return nil
	}
	return admit(c, uid)
}

// OnIssue may refuse renewals, which succeed by default.
func (h *Hub) OnIssue(f func(c identity.Cluster) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.issue = f
}

// Issue is tunnel.Issuer's.
func (h *Hub) Issue(_ context.Context, c identity.Cluster, csrDER []byte) (chain, bundle []byte, err error) {
	h.mu.Lock()
	issue := h.issue
	h.mu.Unlock()
	if issue != nil {
		if err := issue(c); err != nil {
			return nil, nil, err
		}
	}
	csr, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		return nil, nil, err
	}
	if err := identity.CheckRequest(csr, c); err != nil {
		return nil, nil, err
	}
	leaf, err := h.Authority.Sign(c.URI(), csr.PublicKey, nil)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM(leaf.Raw, h.Authority.Certificate.Raw), h.Authority.BundlePEM(), nil
}

// Agent is a running agent.
type Agent struct {
	*tunnel.Agent
	Credentials *Credentials
	Network     *Network
	// Stop ends it and waits; the end of the test does so too.
	Stop func()
}

// Connect runs an agent of a new cluster that serves doors, over a network
// without faults, and waits for its session.
func (h *Hub) Connect(tb testing.TB, name string, doors map[string]http.Handler) *Agent {
	tb.Helper()
	agent := h.Run(tb, h.Authority.NewCluster(name), NewNetwork(NetworkConfig{}), func(c *tunnel.AgentConfig) { c.Doors = doors })
	h.Session(tb, name)
	return agent
}

// Run runs an agent over a network. change, if not nil, alters its
// configuration.
func (h *Hub) Run(tb testing.TB, c identity.Cluster, network *Network, change func(*tunnel.AgentConfig)) *Agent {
	tb.Helper()
	return h.RunWith(tb, h.Authority.Credentials(tb, c), network, change)
}

// RunWith is Run with credentials that another agent may have had.
func (h *Hub) RunWith(tb testing.TB, credentials *Credentials, network *Network, change func(*tunnel.AgentConfig)) *Agent {
	tb.Helper()
	config := tunnel.AgentConfig{
		Address:       "hub.test:8443",
		Credentials:   credentials,
		KubeSystemUID: "uid-of-" + credentials.Cluster.Name,
		Version:       "test",
		DialPipe:      h.DialPipe(network),
	}
	if change != nil {
		change(&config)
	}
	agent, err := tunnel.NewAgent(config)
	if err != nil {
		tb.Fatal(err)
	}
	return &Agent{Agent: agent, Credentials: credentials, Network: network, Stop: run(tb, agent)}
}

func run(tb testing.TB, agent *tunnel.Agent) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	tb.Cleanup(stop)
	return stop
}

// Session waits for a cluster to be connected.
func (h *Hub) Session(tb testing.TB, cluster string) *tunnel.Session {
	tb.Helper()
	found := make(chan *tunnel.Session, 1)
	cancel := h.Server.Sessions().Subscribe(func(e tunnel.Event) {
		if e.Cluster != cluster || e.Session == nil || e.Session.Err() != nil {
			return
		}
		select {
		case found <- e.Session:
		default:
		}
	})
	defer cancel()
	select {
	case session := <-found:
		return session
	case <-tb.Context().Done():
		tb.Fatalf("cluster %q did not connect: %v", cluster, tb.Context().Err())
		return nil
	}
}
