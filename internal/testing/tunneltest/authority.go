// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Authority is a hub's certificate authority.
type Authority struct {
	HubID       string
	Certificate *x509.Certificate
	Pool        *x509.CertPool
	// Life of the certificates that it issues; an hour by default.
	Life time.Duration

	key *ecdsa.PrivateKey
}

// NewAuthority makes an authority for a new hub.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{HubID: identity.NewID(), Pool: x509.NewCertPool(), key: newKey(tb), Life: time.Hour}
	template := &x509.Certificate{
		SerialNumber:          serial(tb),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(10 * 365 * 24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.Certificate, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.Pool.AddCert(a.Certificate)
	return a
}

// Cluster returns a new identity of a cluster of the hub.
func (a *Authority) Cluster(name string) identity.Cluster {
	return identity.Cluster{HubID: a.HubID, Name: name, ID: identity.NewID()}
}

// Issue returns a certificate, with its key, for an identity's URI. The chain
// holds the authority.
func (a *Authority) Issue(tb testing.TB, uri *url.URL) *tls.Certificate {
	tb.Helper()
	key := newKey(tb)
	der, err := a.sign(uri, key.Public())
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.Certificate.Raw}, PrivateKey: key}
}

// BundlePEM is the authority's certificate.
func (a *Authority) BundlePEM() []byte { return toPEM(a.Certificate.Raw) }

func (a *Authority) sign(uri *url.URL, key crypto.PublicKey) ([]byte, error) {
	number, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: number,
		NotBefore:    time.Now().Add(-time.Second),
		NotAfter:     time.Now().Add(a.Life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:         []*url.URL{uri},
	}, a.Certificate, key, a.key)
}

func toPEM(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	number, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	return number
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
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
