// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Keys of the Secret.
const (
	keyPrivate     = "tls.key"
	keyCertificate = "tls.crt"
	keyBundle      = "ca.crt"
	keyTokenHash   = "join-token-sha256" //nolint:gosec // a key of the Secret, not a credential
)

var (
	// ErrNotJoined says that there is no certificate yet.
	ErrNotJoined = errors.New("cluster has not joined a hub")
	// ErrExpired says that the certificate has ended.
	ErrExpired = errors.New("certificate has expired")
	// ErrSecret says that the Secret does not hold an identity.
	ErrSecret = errors.New("not the identity of an agent")
	// ErrAnswer says that the hub answered with something that is not this
	// cluster's certificate.
	ErrAnswer = errors.New("hub's answer is not this cluster's certificate")
)

// credentials are a certificate and what belongs to it. They are never changed.
type credentials struct {
	cluster     identity.Cluster
	certificate *tls.Certificate
	authorities *x509.CertPool
	chainPEM    []byte
	bundlePEM   []byte
	tokenHash   string
}

func (c *credentials) leaf() *x509.Certificate { return c.certificate.Leaf }

func newPrivateKey() (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("key: %w", err)
	}
	return keyPair{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}, nil
}

// issuedAfter compares by the hub's clock, which dates every certificate.
func (c *credentials) issuedAfter(other *credentials) bool {
	return c.leaf().NotBefore.After(other.leaf().NotBefore)
}

// hashToken names a token without holding it.
func hashToken(joinToken string) string {
	sum := sha256.Sum256([]byte(joinToken))
	return hex.EncodeToString(sum[:])
}

// parsePrivateKey leaves out the parsers' own errors: they speak of the key.
func parsePrivateKey(pemBytes []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(pemBytes)
	if block == nil {
		return nil, fmt.Errorf("%s: %w: no PEM", keyPrivate, ErrSecret)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: no PKCS#8 key", keyPrivate, ErrSecret)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: %w: not a key that signs", keyPrivate, ErrSecret)
	}
	return signer, nil
}

// parseCredentials checks that chain and bundle (PEM) are a certificate of the
// key for a cluster of the given name, signed by the bundle. It does not look at
// the time: a certificate that is not valid now is a matter of the clock.
func parseCredentials(key crypto.Signer, name string, chain, bundle []byte) (*credentials, error) {
	certificate, err := parseChain(key, chain)
	if err != nil {
		return nil, err
	}
	cluster, err := identity.ClusterOf(certificate.Leaf)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if cluster.Name != name {
		return nil, fmt.Errorf("%w: it is for cluster %q, not %q", ErrAnswer, cluster.Name, name)
	}
	authorities, err := parseBundle(bundle)
	if err != nil {
		return nil, err
	}
	if err := verify(certificate, authorities); err != nil {
		return nil, err
	}
	return &credentials{
		cluster: cluster, certificate: certificate, authorities: authorities,
		chainPEM: bytes.Clone(chain), bundlePEM: bytes.Clone(bundle),
	}, nil
}

func parseChain(key crypto.Signer, chain []byte) (*tls.Certificate, error) {
	ders, err := decode(chain)
	if err != nil {
		return nil, fmt.Errorf("certificate chain: %w", err)
	}
	leaf, err := x509.ParseCertificate(ders[0])
	if err != nil {
		return nil, fmt.Errorf("certificate chain: %w: %w", ErrAnswer, err)
	}
	public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, fmt.Errorf("%w: it is for another key", ErrAnswer)
	}
	return &tls.Certificate{Certificate: ders, PrivateKey: key, Leaf: leaf}, nil
}

func parseBundle(bundle []byte) (*x509.CertPool, error) {
	ders, err := decode(bundle)
	if err != nil {
		return nil, fmt.Errorf("trust bundle: %w", err)
	}
	pool := x509.NewCertPool()
	for _, der := range ders {
		authority, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("trust bundle: %w: %w", ErrAnswer, err)
		}
		if !authority.IsCA {
			return nil, fmt.Errorf("trust bundle: %w: it holds a certificate that is no authority's", ErrAnswer)
		}
		pool.AddCert(authority)
	}
	return pool, nil
}

func verify(certificate *tls.Certificate, authorities *x509.CertPool) error {
	intermediates := x509.NewCertPool()
	for _, der := range certificate.Certificate[1:] {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate chain: %w: %w", ErrAnswer, err)
		}
		intermediates.AddCert(parsed)
	}
	_, err := certificate.Leaf.Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: intermediates, CurrentTime: certificate.Leaf.NotBefore,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("certificate chain: %w: %w", ErrAnswer, err)
	}
	return nil
}

// maxCertificates bounds chains and bundles that come from the hub.
const maxCertificates = 16

// decode returns the certificates of a PEM file that holds one at least and
// nothing else.
func decode(rest []byte) ([][]byte, error) {
	var ders [][]byte
	for len(bytes.TrimSpace(rest)) > 0 {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || len(ders) == maxCertificates {
			return nil, fmt.Errorf("%w: not PEM of 1 to %d certificates", ErrAnswer, maxCertificates)
		}
		ders = append(ders, block.Bytes)
	}
	if len(ders) == 0 {
		return nil, fmt.Errorf("%w: no certificate", ErrAnswer)
	}
	return ders, nil
}

// holds tells whether the bundle has the authority of a SHA-256 fingerprint, in
// hex of either case.
func holds(bundle []byte, fingerprint string) bool {
	want, err := hex.DecodeString(fingerprint)
	if err != nil {
		return false
	}
	ders, err := decode(bundle)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ders, func(der []byte) bool {
		sum := sha256.Sum256(der)
		return bytes.Equal(sum[:], want)
	})
}
