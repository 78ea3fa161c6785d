// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/url"
)

// NewRequest returns a certificate request (PKCS #10, DER) for a cluster. A
// cluster that renews is known in full and asks for its URI; one that joins
// knows only its Name (HubID and ID empty) and asks with its common name.
// Errors wrap ErrName, ErrID or ErrWeakKey, or come from the key.
func NewRequest(key crypto.Signer, c Cluster) ([]byte, error) {
	if err := checkKey(key.Public()); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: c.Name}}
	if joining := (Cluster{Name: c.Name}); c == joining {
		if err := ValidateName(c.Name); err != nil {
			return nil, fmt.Errorf("certificate request: %w", err)
		}
	} else {
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("certificate request: %w", err)
		}
		template.URIs = []*url.URL{c.URI()}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return der, nil
}

// CheckRequest returns nil when a request asks for want and for nothing more:
// signed by its own strong key, the subject empty or exactly the common name
// want.Name, no subject alternative name or exactly want's URI, no other
// extension and no other attribute. Errors wrap one of this package's
// sentinels.
func CheckRequest(csr *x509.CertificateRequest, want Cluster) error {
	if err := want.Validate(); err != nil {
		return fmt.Errorf("certificate request: %w", err)
	}
	// The key comes before the signature, so that no endless RSA key is used.
	if err := checkKey(csr.PublicKey); err != nil {
		return fmt.Errorf("certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return fmt.Errorf("certificate request: %w: %w", ErrSignature, err)
	}
	if err := checkClaims(csr, want); err != nil {
		return fmt.Errorf("certificate request: %w", err)
	}
	return nil
}

func checkClaims(csr *x509.CertificateRequest, want Cluster) error {
	if err := checkSubject(csr.Subject, want.Name); err != nil {
		return err
	}
	if err := checkAttributes(csr.RawTBSCertificateRequest); err != nil {
		return err
	}
	for _, ext := range csr.Extensions {
		if !ext.Id.Equal(oidSubjectAltName) {
			return fmt.Errorf("%w: extension %v", ErrClaim, ext.Id)
		}
	}
	uris, err := uriNames(csr.Extensions)
	if err != nil {
		return err
	}
	if len(uris) > 1 {
		return fmt.Errorf("%w: %d names", ErrNames, len(uris))
	}
	if len(uris) == 1 && uris[0] != want.String() {
		return fmt.Errorf("%w: %.200q is not %s", ErrURI, uris[0], want)
	}
	return nil
}

// checkAttributes refuses what crypto/x509 skips: attributes that are not the
// request for extensions, such as Microsoft's own form of it.
func checkAttributes(der []byte) error {
	var request struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	if _, err := asn1.Unmarshal(der, &request); err != nil {
		return fmt.Errorf("%w: %w", ErrClaim, err)
	}
	for _, raw := range request.Attributes {
		var attribute struct {
			ID     asn1.ObjectIdentifier
			Values asn1.RawValue
		}
		if _, err := asn1.Unmarshal(raw.FullBytes, &attribute); err != nil {
			return fmt.Errorf("%w: %w", ErrClaim, err)
		}
		if !attribute.ID.Equal(oidExtensionRequest) {
			return fmt.Errorf("%w: attribute %v", ErrClaim, attribute.ID)
		}
	}
	return nil
}
