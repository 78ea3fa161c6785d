// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func checkPeer(t *testing.T) {
	h := startHub(t, nil)
	cluster := h.authority.NewCluster("store7")
	cert := issue(t, h.authority, cluster.URI(), nil)
	p, _ := h.connect(t, h.agentConfig(t, func(o *pipe.DialConfig) {
		o.TLS, o.Process = agentTLS(h.authority, cert), "pod-7f9c"
	}))
	want := pipe.Peer{Cluster: cluster, Process: "pod-7f9c", NotAfter: cert.Leaf.NotAfter}
	if diff := cmp.Diff(want, p.peer, cmpopts.IgnoreFields(pipe.Peer{}, "Remote")); diff != "" {
		t.Errorf("peer: -want, +got:\n%s", diff)
	}
	if p.peer.Remote == nil || !strings.HasPrefix(p.peer.Remote.String(), "127.0.0.1:") {
		t.Errorf("peer's remote address is %v", p.peer.Remote)
	}
}

func checkStrangers(t *testing.T) {
	h := startHub(t, nil)
	foreign := newAuthority(t)
	store1 := h.authority.NewCluster("store1")
	cases := map[string]struct {
		reason string
		cert   tls.Certificate
	}{
		"no certificate":           {"nobody", tls.Certificate{}},
		"another authority":        {"signed by a stranger", issue(t, foreign, store1.URI(), nil)},
		"another hub's cluster":    {"the authority may serve two hubs", issue(t, h.authority, foreign.NewCluster("store1").URI(), nil)},
		"the hub itself":           {"a hub is no agent", issue(t, h.authority, identity.Hub{ID: h.authority.HubID}.URI(), nil)},
		"a DNS name beside":        {"two readers, two answers", issue(t, h.authority, store1.URI(), func(c *x509.Certificate) { c.DNSNames = []string{"store2"} })},
		"another common name":      {"two readers, two answers", issue(t, h.authority, store1.URI(), func(c *x509.Certificate) { c.Subject.CommonName = "store2" })},
		"a group":                  {"more than an identity", issue(t, h.authority, store1.URI(), func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} })},
		"no client authentication": {"not issued for this", issue(t, h.authority, store1.URI(), func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })},
		"an authority":             {"could sign others", issue(t, h.authority, store1.URI(), func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true })},
		"expired":                  {"its time is over", issue(t, h.authority, store1.URI(), func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(1) })},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := h.dial(t, h.agentConfig(t, func(o *pipe.DialConfig) { o.TLS = agentTLS(h.authority, tc.cert) }))
			if err == nil {
				t.Errorf("%s: the agent connected", tc.reason)
			}
		})
	}
	notServed(t, h)
}

// notServed checks that nobody reached the handler.
func notServed(t *testing.T, h *testHub) {
	t.Helper()
	select {
	case p := <-h.pipes:
		t.Errorf("%v reached the handler", p.peer)
	default:
	}
}

func checkProcessNames(t *testing.T) {
	h := startHub(t, nil)
	for _, process := range []string{
		"", "a/b", "A", "a b", "a\x00", "a,b", "ä", "../x", "a.b", "host=evil", strings.Repeat("a", 64),
	} {
		if _, err := h.dial(t, h.agentConfig(t, func(o *pipe.DialConfig) { o.Process = process })); !errors.Is(err, pipe.ErrProcess) {
			t.Errorf("Dial() as %q = %v, want %v", process, err, pipe.ErrProcess)
		}
	}
	notServed(t, h)
}

func checkAdmission(t *testing.T) {
	asked := make(chan identity.Cluster, 1)
	h := startHub(t, func(o *HubConfig) {
		o.Admit = func(_ context.Context, c identity.Cluster) error {
			asked <- c
			return errors.New("the secret reason")
		}
	})
	cluster := h.authority.NewCluster("store1")
	cert := issue(t, h.authority, cluster.URI(), nil)
	_, err := h.dial(t, h.agentConfig(t, func(o *pipe.DialConfig) { o.TLS = agentTLS(h.authority, cert) }))
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

func checkPerCluster(t *testing.T) {
	h := startHub(t, func(o *HubConfig) { o.PerCluster = 2 })
	options := h.agentConfig(t, nil)
	h.connect(t, options)
	second, _ := h.connect(t, options)
	if _, err := h.dial(t, options); !errors.Is(err, pipe.ErrRefused) {
		t.Fatalf("Dial() a third time = %v, want %v", err, pipe.ErrRefused)
	}
	other := h.agentConfig(t, nil)
	h.connect(t, other)
	second.release()
	// The place is free when the hub has cleared it away, which nobody tells.
	for t.Context().Err() == nil {
		if _, err := h.dial(t, options); err == nil {
			return
		}
	}
}
