// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testca is a hub's certificate authority for tests and benchmarks.
package testca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// authorityLifetime is longer than any test, synthetic time included.
const authorityLifetime = 10 * 365 * 24 * time.Hour

// Authority is a hub's certificate authority.
type Authority struct {
	// HubID is the ID of the hub that the authority belongs to.
	HubID string
	// Certificate and Pool are the authority's own.
	Certificate *x509.Certificate
	Pool        *x509.CertPool
	// Lifetime is that of the certificates that it issues.
	Lifetime time.Duration

	key *ecdsa.PrivateKey
}

// New returns the authority of a new hub. Its certificates are valid for an hour.
func New() (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(authorityLifetime)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "test authority"}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	certificate, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &Authority{HubID: identity.NewID(), Certificate: certificate, Pool: x509.NewCertPool(), Lifetime: time.Hour, key: key}
	a.Pool.AddCert(certificate)
	return a, nil
}

// NewCluster returns the identity of a new cluster of the hub.
func (a *Authority) NewCluster(name string) identity.Cluster {
	return identity.Cluster{HubID: a.HubID, Name: name, ID: identity.NewID()}
}

// Issue returns a new key and a certificate for it and an identity's URI; the chain
// ends with the authority. change, if not nil, alters the template before it is signed.
func (a *Authority) Issue(uri *url.URL, change func(*x509.Certificate)) (*tls.Certificate, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	leaf, err := a.Sign(uri, key.Public(), change)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.Certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// Sign returns a certificate for a key and an identity's URI.
func (a *Authority) Sign(uri *url.URL, key crypto.PublicKey, change func(*x509.Certificate)) (*x509.Certificate, error) {
	template, err := newTemplate(a.Lifetime)
	if err != nil {
		return nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.URIs = []*url.URL{uri}
	if change != nil {
		change(template)
	}
	return sign(template, a.Certificate, key, a.key)
}

// NewKey returns a key for certificates of the tunnel.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newTemplate(lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	// Not long ago: the tunnel renews by the share of the lifetime that has passed.
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-time.Second), NotAfter: now.Add(lifetime)}, nil
}

func sign(template, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}
