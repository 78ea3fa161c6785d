// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func checkPeer(t *testing.T, kind Kind) {
	h := Start(t, kind, nil)
	cluster := h.Authority.Cluster("store7")
	cert := h.Authority.Issue(t, cluster.URI(), nil)
	p, _ := h.Connect(t, h.Agent(t, func(o *AgentOptions) {
		o.TLS, o.Process = h.Authority.AgentTLS(cert), "pod-7f9c"
	}))
	want := pipe.Peer{Cluster: cluster, Process: "pod-7f9c", NotAfter: cert.Leaf.NotAfter}
	if diff := cmp.Diff(want, p.Peer, cmpopts.IgnoreFields(pipe.Peer{}, "Remote")); diff != "" {
		t.Errorf("peer: -want, +got:\n%s", diff)
	}
	if p.Peer.Remote == nil || !strings.HasPrefix(p.Peer.Remote.String(), "127.0.0.1:") {
		t.Errorf("peer's remote address is %v", p.Peer.Remote)
	}
}

func checkStrangers(t *testing.T, kind Kind) {
	h := Start(t, kind, nil)
	foreign := NewAuthority(t)
	store1 := h.Authority.Cluster("store1")
	issue := func(a *Authority, uri *url.URL, change func(*x509.Certificate)) tls.Certificate {
		return a.Issue(t, uri, change)
	}
	cases := map[string]struct {
		reason string
		cert   tls.Certificate
	}{
		"no certificate":           {"nobody", tls.Certificate{}},
		"another authority":        {"signed by a stranger", issue(foreign, store1.URI(), nil)},
		"another hub's cluster":    {"the authority may serve two hubs", issue(h.Authority, foreign.Cluster("store1").URI(), nil)},
		"the hub itself":           {"a hub is no agent", issue(h.Authority, identity.Hub{ID: h.Authority.HubID}.URI(), nil)},
		"a DNS name beside":        {"two readers, two answers", issue(h.Authority, store1.URI(), func(c *x509.Certificate) { c.DNSNames = []string{"store2"} })},
		"another common name":      {"two readers, two answers", issue(h.Authority, store1.URI(), func(c *x509.Certificate) { c.Subject.CommonName = "store2" })},
		"a group":                  {"more than an identity", issue(h.Authority, store1.URI(), func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} })},
		"no client authentication": {"not issued for this", issue(h.Authority, store1.URI(), func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })},
		"an authority":             {"could sign others", issue(h.Authority, store1.URI(), func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true })},
		"expired":                  {"its time is over", issue(h.Authority, store1.URI(), func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(1) })},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := h.Dial(t, h.Agent(t, func(o *AgentOptions) { o.TLS = h.Authority.AgentTLS(tc.cert) }))
			if err == nil {
				t.Errorf("%s: the agent connected", tc.reason)
			}
		})
	}
	notServed(t, h)
}

// notServed checks that nobody reached the handler.
func notServed(t *testing.T, h *Hub) {
	t.Helper()
	select {
	case p := <-h.Pipes:
		t.Errorf("%v reached the handler", p.Peer)
	default:
	}
}

func checkProcessNames(t *testing.T, kind Kind) {
	h := Start(t, kind, nil)
	for _, process := range []string{
		"", "a/b", "A", "a b", "a\x00", "a,b", "ä", "../x", "a.b", "host=evil", strings.Repeat("a", 64),
	} {
		if _, err := h.Dial(t, h.Agent(t, func(o *AgentOptions) { o.Process = process })); !errors.Is(err, pipe.ErrProcess) {
			t.Errorf("Dial() as %q = %v, want %v", process, err, pipe.ErrProcess)
		}
	}
	notServed(t, h)
}

func checkAdmission(t *testing.T, kind Kind) {
	asked := make(chan identity.Cluster, 1)
	h := Start(t, kind, func(o *HubOptions) {
		o.Admit = func(_ context.Context, c identity.Cluster) error {
			asked <- c
			return errors.New("the secret reason")
		}
	})
	cluster := h.Authority.Cluster("store1")
	cert := h.Authority.Issue(t, cluster.URI(), nil)
	_, err := h.Dial(t, h.Agent(t, func(o *AgentOptions) { o.TLS = h.Authority.AgentTLS(cert) }))
	if !errors.Is(err, pipe.ErrRefused) {
		t.Errorf("Dial() = %v, want %v", err, pipe.ErrRefused)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the agent was told the reason: %v", err)
	}
	if got := receive(t, asked, "admission"); got != cluster {
		t.Errorf("admission was asked for %v, want %v", got, cluster)
	}
	notServed(t, h)
}

func checkPerCluster(t *testing.T, kind Kind) {
	h := Start(t, kind, func(o *HubOptions) { o.PerCluster = 2 })
	options := h.Agent(t, nil)
	h.Connect(t, options)
	second, _ := h.Connect(t, options)
	if _, err := h.Dial(t, options); !errors.Is(err, pipe.ErrRefused) {
		t.Fatalf("Dial() a third time = %v, want %v", err, pipe.ErrRefused)
	}
	other := h.Agent(t, nil)
	h.Connect(t, other)
	second.Release()
	// The place is free when the hub has cleared it away, which nobody tells.
	for t.Context().Err() == nil {
		if _, err := h.Dial(t, options); err == nil {
			return
		}
	}
}
