// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
)

const (
	minRSABits = 2048
	// maxRSABits is what crypto/tls accepts: verifying with longer keys is an
	// invitation to burn CPU.
	maxRSABits = 8192

	// tagURI is uniformResourceIdentifier of GeneralName (RFC 5280, 4.2.1.6).
	tagURI = 6
)

var (
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidCommonName       = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidExtensionRequest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
)

// HubOf returns the hub that a verified certificate belongs to. Errors wrap
// one of this package's sentinels.
func HubOf(cert *x509.Certificate) (Hub, error) {
	uri, err := peerURI(cert)
	if err != nil {
		return Hub{}, fmt.Errorf("hub certificate: %w", err)
	}
	h, err := ParseHub(uri)
	if err != nil {
		return Hub{}, fmt.Errorf("hub certificate: %w", err)
	}
	return h, nil
}

// ClusterOf returns the cluster that a verified certificate belongs to. The
// subject must be empty or hold nothing but the cluster's name as its common
// name. Errors wrap one of this package's sentinels.
func ClusterOf(cert *x509.Certificate) (Cluster, error) {
	uri, err := peerURI(cert)
	if err != nil {
		return Cluster{}, fmt.Errorf("cluster certificate: %w", err)
	}
	c, err := ParseCluster(uri)
	if err != nil {
		return Cluster{}, fmt.Errorf("cluster certificate: %w", err)
	}
	if err := checkSubject(cert.Subject, c.Name); err != nil {
		return Cluster{}, fmt.Errorf("cluster certificate: %w", err)
	}
	return c, nil
}

// peerURI checks what the certificates of both kinds of peer have in common
// and returns the one URI as it stands in the certificate.
func peerURI(cert *x509.Certificate) (string, error) {
	if cert.IsCA {
		return "", ErrAuthority
	}
	if err := checkUsages(cert); err != nil {
		return "", err
	}
	if err := checkKey(cert.PublicKey); err != nil {
		return "", err
	}
	uris, err := uriNames(cert.Extensions)
	if err != nil {
		return "", err
	}
	if len(uris) != 1 {
		return "", fmt.Errorf("%w: %d names", ErrNames, len(uris))
	}
	return uris[0], nil
}

// checkUsages wants client and server authentication and nothing else: both
// ends of a tunnel are server in one layer and client in the other.
func checkUsages(cert *x509.Certificate) error {
	if cert.KeyUsage&^(x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment) != 0 {
		return fmt.Errorf("%w: key usage", ErrUsage)
	}
	if len(cert.UnknownExtKeyUsage) != 0 || len(cert.ExtKeyUsage) != 2 ||
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		return fmt.Errorf("%w: extended key usage", ErrUsage)
	}
	return nil
}

func checkKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("%w: RSA of %d bits", ErrWeakKey, bits)
		}
		return nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() || k.Curve == elliptic.P521() {
			return nil
		}
		return fmt.Errorf("%w: curve", ErrWeakKey)
	case ed25519.PublicKey:
		return nil
	default:
		return fmt.Errorf("%w: %T", ErrWeakKey, key)
	}
}

// uriNames returns the subject alternative names if all of them are URIs. It
// reads the extension itself: crypto/x509 passes silently over other names,
// directory names and registered ids, and parses URIs into a url.URL, which
// has lost how they were spelt.
func uriNames(extensions []pkix.Extension) ([]string, error) {
	var uris []string
	for _, ext := range extensions {
		if !ext.Id.Equal(oidSubjectAltName) {
			continue
		}
		names, err := parseURINames(ext.Value)
		if err != nil {
			return nil, err
		}
		uris = append(uris, names...)
	}
	return uris, nil
}

func parseURINames(der []byte) ([]string, error) {
	var names []asn1.RawValue
	rest, err := asn1.Unmarshal(der, &names)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNames, err)
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: trailing data", ErrNames)
	}
	uris := make([]string, 0, len(names))
	for _, name := range names {
		if name.Class != asn1.ClassContextSpecific || name.IsCompound || name.Tag != tagURI {
			return nil, fmt.Errorf("%w: name of kind %d", ErrNames, name.Tag)
		}
		uris = append(uris, string(name.Bytes))
	}
	return uris, nil
}

// checkSubject reads Names, which holds every attribute in order; the fields
// of pkix.Name drop what they do not know and keep the last of several common
// names.
func checkSubject(subject pkix.Name, name string) error {
	if len(subject.Names) == 0 {
		return nil
	}
	if len(subject.Names) > 1 || !subject.Names[0].Type.Equal(oidCommonName) {
		return ErrSubject
	}
	if value, ok := subject.Names[0].Value.(string); !ok || value != name {
		return ErrSubject
	}
	return nil
}
