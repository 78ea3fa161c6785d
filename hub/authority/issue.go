// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// newClusterTemplate holds a cluster's one name. Both usages: the agent is the client
// of the hub's public port and the server of the session inside it.
func newClusterTemplate(cluster identity.Cluster) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: cluster.Name},
		URIs:        []*url.URL{cluster.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// newHubTemplate is the mirror image: server of the public port, client of sessions.
func newHubTemplate(id string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "spokelet hub"},
		URIs:        []*url.URL{identity.Hub{ID: id}.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// issue signs the template for a public key and returns the DER.
func (m *material) issue(template *x509.Certificate, key crypto.PublicKey, life time.Duration, now time.Time) ([]byte, error) {
	if now.After(m.certificate.NotAfter) {
		return nil, fmt.Errorf("certificate authority expired at %s", m.certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	template.NotBefore = now.Add(-clockSkew)
	template.NotAfter = now.Add(life)
	if template.NotAfter.After(m.certificate.NotAfter) {
		template.NotAfter = m.certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, m.certificate, key, m.key)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	return der, nil
}

// sign makes a key of this process and a certificate for it, with the CA's own
// certificate at the end of the chain.
func (m *material) sign(template *x509.Certificate, life time.Duration, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	der, err := m.issue(template, key.Public(), life, now)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, m.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// isRenewalDue reports whether a certificate has reached three fifths of its life: before
// two thirds, where the other side starts to ask for a new one.
func isRenewalDue(leaf *x509.Certificate, now time.Time) bool {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return now.After(leaf.NotBefore.Add(life * 3 / 5))
}

// Names are the names of a server of the hub: a kubelet endpoint, the
// aggregated API, a webhook.
type Names struct {
	DNS []string
	IPs []net.IP
}

// Serving is the certificate of one server of the hub, renewed when it is asked
// for. It is safe for concurrent use.
type Serving struct {
	authority *Authority
	names     Names

	mu          sync.Mutex
	certificate *tls.Certificate // guarded by mu
	issuer      *material        // guarded by mu; who signed it
}

// Serving returns the certificate of a server with the given names.
func (a *Authority) Serving(names Names) (*Serving, error) {
	if len(names.DNS)+len(names.IPs) == 0 {
		return nil, errors.New("serving certificate: no DNS name and no IP address")
	}
	s := &Serving{authority: a, names: names}
	_, err := s.Certificate()
	return s, err
}

// Certificate returns one that is good for another two fifths of its life.
func (s *Serving) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, now := s.authority.getMaterial(), s.authority.config.Now()
	if s.certificate != nil && s.issuer == m && !isRenewalDue(s.certificate.Leaf, now) {
		return s.certificate, nil
	}
	certificate, err := m.sign(newServingTemplate(s.names), s.authority.config.CertificateLife, now)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	s.certificate, s.issuer = certificate, m
	return certificate, nil
}

// GetCertificate is Certificate in the form of tls.Config.GetCertificate.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.Certificate()
}

// PEM returns the chain and the key in the form that k8s.io/apiserver takes.
func (s *Serving) PEM() (chain, key []byte, err error) {
	certificate, err := s.Certificate()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("serving certificate: %w", err)
	}
	return encodeCertificates(certificate.Certificate...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newServingTemplate(names Names) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "spokelet hub server"},
		DNSNames:    names.DNS,
		IPAddresses: names.IPs,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return template
}
