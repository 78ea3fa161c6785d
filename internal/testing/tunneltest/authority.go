// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"sync"
	"testing"

	"github.com/spokelet/spokelet/internal/testing/testca"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// Authority is a hub's certificate authority, whose errors fail the test.
type Authority struct{ *testca.Authority }

// NewAuthority makes an authority for a new hub.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a, err := testca.New()
	if err != nil {
		tb.Fatal(err)
	}
	return &Authority{a}
}

// Issue returns a certificate, with its key, for an identity's URI. The chain
// ends with the authority.
func (a *Authority) Issue(tb testing.TB, uri *url.URL) *tls.Certificate {
	tb.Helper()
	cert, err := a.Authority.Issue(uri, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// BundlePEM is the authority's certificate.
func (a *Authority) BundlePEM() []byte { return encodePEM(a.Certificate.Raw) }

func encodePEM(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

// Credentials are an agent's, in memory.
type Credentials struct {
	Cluster identity.Cluster
	HubID   string

	mu       sync.Mutex
	cert     *tls.Certificate
	pool     *x509.CertPool
	key      crypto.Signer // of the pending request
	renewals int
	bundles  int
}

// Credentials returns a cluster's first certificate.
func (a *Authority) Credentials(tb testing.TB, c identity.Cluster) *Credentials {
	tb.Helper()
	return &Credentials{Cluster: c, HubID: a.HubID, cert: a.Issue(tb, c.URI()), pool: a.Pool}
}

// Certificate returns the newest certificate.
func (c *Credentials) Certificate() (*tls.Certificate, *x509.CertPool, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cert, c.pool, c.HubID, nil
}

// NewRequest makes a key and a request for it.
func (c *Credentials) NewRequest(context.Context) ([]byte, error) {
	key, err := testca.NewKey()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key = key
	return identity.NewRequest(key, c.Cluster)
}

// Renewed takes the answer.
func (c *Credentials) Renewed(_ context.Context, chainPEM, bundlePEM []byte) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundlePEM)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool = pool
	if len(chainPEM) == 0 {
		c.bundles++
		return nil
	}
	cert := &tls.Certificate{PrivateKey: c.key}
	for block, rest := pem.Decode(chainPEM); block != nil; block, rest = pem.Decode(rest) {
		cert.Certificate = append(cert.Certificate, block.Bytes)
	}
	c.cert = cert
	c.renewals++
	return nil
}

// Use replaces the certificate.
func (c *Credentials) Use(cert *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cert = cert
}

// Renewals counts the certificates received.
func (c *Credentials) Renewals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewals
}

// Bundles counts the trust bundles received without a certificate.
func (c *Credentials) Bundles() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bundles
}
