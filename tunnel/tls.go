// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// maxChain bounds a peer's certificate chain, so that building chains from it
// costs little.
const maxChain = 8

const protocolH2 = "h2"

// baseTLS holds what every TLS connection of the tunnel has in common. Peers
// are known by their URI, not by DNS names, so Go's check of names is replaced:
// each caller sets VerifyConnection, which Go runs on every handshake. Resumed
// handshakes are off; a connection here lives long.
func baseTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocolH2},
		SessionTicketsDisabled: true,
		// Records of a packet's size help a browser to begin early. Here each
		// record is a message of the pipe, and costs as much as a full one.
		DynamicRecordSizingDisabled: true,
	}
}

// publicTLS is for the public port: the client's certificate is verified if
// one is given.
func publicTLS(material func() (*tls.Certificate, *x509.CertPool, error)) *tls.Config {
	config := baseTLS()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, authorities, err := material()
		if err != nil {
			return nil, fmt.Errorf("hub certificate: %w", err)
		}
		c := baseTLS()
		c.Certificates = []tls.Certificate{*cert}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		c.ClientCAs = authorities
		c.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			// The peer has yet to prove that the key is its own: nothing may
			// depend on this outcome but that the handshake goes on.
			_, err := verifyCluster(state.PeerCertificates, authorities, x509.ExtKeyUsageClientAuth)
			return err
		}
		return c, nil
	}
	return config
}

// hubSessionTLS is the hub's end of a session: the agent must present the
// certificate of exactly the cluster that the pipe belongs to.
func hubSessionTLS(cert *tls.Certificate, authorities *x509.CertPool, want identity.Cluster) *tls.Config {
	config := baseTLS()
	config.InsecureSkipVerify = true // names only; see baseTLS
	config.Certificates = []tls.Certificate{*cert}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		got, err := verifyCluster(state.PeerCertificates, authorities, x509.ExtKeyUsageServerAuth)
		if err == nil && got != want {
			err = fmt.Errorf("%w: %v instead of %v", ErrIdentity, got, want)
		}
		return err
	}
	return config
}

// agentSessionTLS is the agent's end of a session, where it is the server.
func agentSessionTLS(cert *tls.Certificate, authorities *x509.CertPool, hubID string) *tls.Config {
	config := baseTLS()
	config.Certificates = []tls.Certificate{*cert}
	config.ClientAuth = tls.RequireAnyClientCert // verified below, once
	config.VerifyConnection = verifyHub(authorities, hubID, x509.ExtKeyUsageClientAuth)
	return config
}

// agentPipeTLS is for the connection that the agent dials.
func agentPipeTLS(cert *tls.Certificate, authorities *x509.CertPool, hubID string) *tls.Config {
	config := baseTLS()
	config.InsecureSkipVerify = true // names only; see baseTLS
	config.Certificates = []tls.Certificate{*cert}
	config.VerifyConnection = verifyHub(authorities, hubID, x509.ExtKeyUsageServerAuth)
	return config
}

func verifyHub(authorities *x509.CertPool, hubID string, usage x509.ExtKeyUsage) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		leaf, err := verifyChain(state.PeerCertificates, authorities, usage)
		if err != nil {
			return err
		}
		hub, err := identity.HubOf(leaf)
		if err != nil {
			return fmt.Errorf("peer certificate: %w", err)
		}
		if hub.ID != hubID {
			return fmt.Errorf("%w: hub %q instead of %q", ErrIdentity, hub.ID, hubID)
		}
		return nil
	}
}

func verifyCluster(certs []*x509.Certificate, authorities *x509.CertPool, usage x509.ExtKeyUsage) (identity.Cluster, error) {
	leaf, err := verifyChain(certs, authorities, usage)
	if err != nil {
		return identity.Cluster{}, err
	}
	cluster, err := identity.ClusterOf(leaf)
	if err != nil {
		return identity.Cluster{}, fmt.Errorf("peer certificate: %w", err)
	}
	return cluster, nil
}

// verifyChain checks signatures, times and usage of what the peer presented.
func verifyChain(certs []*x509.Certificate, authorities *x509.CertPool, usage x509.ExtKeyUsage) (*x509.Certificate, error) {
	if len(certs) == 0 || len(certs) > maxChain {
		return nil, fmt.Errorf("peer certificate: chain of %d: %w", len(certs), ErrIdentity)
	}
	intermediates := x509.NewCertPool()
	for _, cert := range certs[1:] {
		intermediates.AddCert(cert)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots:         authorities,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return nil, fmt.Errorf("peer certificate: %w", err)
	}
	return certs[0], nil
}

// enrollTLS trusts the one authority with the fingerprint, which the hub must
// send as part of its chain.
func enrollTLS(fingerprint [sha256.Size]byte) *tls.Config {
	config := baseTLS()
	config.InsecureSkipVerify = true // names only; see baseTLS
	config.VerifyConnection = func(state tls.ConnectionState) error {
		authority, err := findAuthority(state.PeerCertificates, fingerprint)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AddCert(authority)
		leaf, err := verifyChain(state.PeerCertificates, pool, x509.ExtKeyUsageServerAuth)
		if err != nil {
			return err
		}
		if _, err := identity.HubOf(leaf); err != nil {
			return fmt.Errorf("hub certificate: %w", err)
		}
		return nil
	}
	return config
}

func findAuthority(certs []*x509.Certificate, fingerprint [sha256.Size]byte) (*x509.Certificate, error) {
	for _, cert := range certs {
		if cert.IsCA && sha256.Sum256(cert.Raw) == fingerprint {
			return cert, nil
		}
	}
	return nil, fmt.Errorf("hub certificate: no authority with fingerprint %x: %w", fingerprint, ErrIdentity)
}

// parseFingerprint reads the hex of a SHA-256, in any case, with or without
// "sha256:" before it and colons in it.
func parseFingerprint(s string) (sum [sha256.Size]byte, err error) {
	text := strings.TrimPrefix(strings.ToLower(s), "sha256:")
	raw, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(raw) != sha256.Size {
		return sum, fmt.Errorf("fingerprint %.100q is not the hex of a SHA-256", s)
	}
	return [sha256.Size]byte(raw), nil
}
