// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Authority is a hub's certificate authority for tests.
type Authority struct {
	// HubID is the id of the hub that it belongs to.
	HubID string
	// Certificate and Pool are the authority's own.
	Certificate *x509.Certificate
	Pool        *x509.CertPool

	key *ecdsa.PrivateKey
}

// NewAuthority makes an authority for a new hub.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{HubID: identity.NewID(), Pool: x509.NewCertPool(), key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber:          serial(tb),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
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

// Issue returns a certificate for an identity's URI. change, if not nil,
// alters the template before it is signed.
func (a *Authority) Issue(tb testing.TB, uri *url.URL, change func(*x509.Certificate)) tls.Certificate {
	tb.Helper()
	key := newKey(tb)
	template := &x509.Certificate{
		SerialNumber: serial(tb),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:         []*url.URL{uri},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// HubTLS returns the configuration of the hub's public port: a client
// certificate is verified if one is given.
func (a *Authority) HubTLS(tb testing.TB) *tls.Config {
	tb.Helper()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{a.Issue(tb, identity.Hub{ID: a.HubID}.URI(), nil)},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    a.Pool,
	}
}

// AgentTLS returns the configuration of an agent that presents cert, or none
// if it is zero.
func (a *Authority) AgentTLS(cert tls.Certificate) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The hub's certificate has a URI and no DNS name.
		InsecureSkipVerify: true, //nolint:gosec // verified below
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
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
