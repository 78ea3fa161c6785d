// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Keys of the Secret.
const (
	KeyCertificate = "ca.crt"
	KeyPrivateKey  = "ca.key"
	KeyHubID       = "hub-id"
	KeyBundle      = "ca-bundle.crt"
)

const (
	// caLife is long because replacing a CA needs the cooperation of every agent.
	caLife = 10 * 365 * 24 * time.Hour
	// clockSkew is how far an agent's clock may be behind the hub's.
	clockSkew = 5 * time.Minute
	// maxBundle bounds what a handshake has to try; rotation needs two.
	maxBundle = 8
)

var (
	// ErrIncomplete means that the Secret lacks a part: the CA's certificate, its
	// key and the hub id are of use only together.
	ErrIncomplete = errors.New("incomplete")
	// ErrMismatch means that the parts of the Secret do not belong together.
	ErrMismatch = errors.New("parts do not belong together")
	// ErrInvalid means that a part cannot be used as what it should be.
	ErrInvalid = errors.New("invalid")
)

// material is the content of the Secret, checked. It is never changed.
type material struct {
	hubID       string
	certificate *x509.Certificate
	key         crypto.Signer
	trusted     []*x509.Certificate // the signing CA first
	pool        *x509.CertPool
	bundle      []byte // PEM of trusted
}

// newMaterial makes a CA and a hub id, as the data of a Secret.
func newMaterial(now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("CA key: %w", err)
	}
	id := identity.NewID()
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "spokelet hub " + id},
		// The trust domain itself, as a signing certificate of SPIFFE has it
		// (X.509-SVID, section 3.2): it ties the CA to the hub id.
		URIs:                  []*url.URL{trustDomain(id)},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("CA key: %w", err)
	}
	return map[string][]byte{
		KeyCertificate: encodeCertificates(der),
		KeyPrivateKey:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		KeyHubID:       []byte(id),
	}, nil
}

// parseMaterial checks the data of a Secret as a whole.
func parseMaterial(data map[string][]byte, now time.Time) (*material, error) {
	if missing := missingKeys(data); len(missing) > 0 {
		return nil, fmt.Errorf("%w: no %s: the CA and the hub id are restored together or made together",
			ErrIncomplete, strings.Join(missing, ", "))
	}
	certificate, err := parseSigningCA(data[KeyCertificate], now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyCertificate, err)
	}
	key, err := parsePrivateKey(data[KeyPrivateKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyPrivateKey, err)
	}
	if !equalPublicKeys(certificate.PublicKey, key.Public()) {
		return nil, fmt.Errorf("%w: %s is not the key of %s", ErrMismatch, KeyPrivateKey, KeyCertificate)
	}
	id, err := parseHubID(data[KeyHubID], certificate)
	if err != nil {
		return nil, err
	}
	extra, err := parseBundle(data[KeyBundle])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyBundle, err)
	}
	return assemble(id, certificate, key, extra), nil
}

func assemble(id string, certificate *x509.Certificate, key crypto.Signer, extra []*x509.Certificate) *material {
	m := &material{hubID: id, certificate: certificate, key: key, pool: x509.NewCertPool()}
	for _, ca := range append([]*x509.Certificate{certificate}, extra...) {
		if slices.ContainsFunc(m.trusted, ca.Equal) {
			continue
		}
		m.trusted = append(m.trusted, ca)
		m.pool.AddCert(ca)
		m.bundle = append(m.bundle, encodeCertificates(ca.Raw)...)
	}
	return m
}

func missingKeys(data map[string][]byte) []string {
	var missing []string
	for _, key := range []string{KeyCertificate, KeyPrivateKey, KeyHubID} {
		if len(bytes.TrimSpace(data[key])) == 0 {
			missing = append(missing, key)
		}
	}
	return missing
}

func parseSigningCA(pemBytes []byte, now time.Time) (*x509.Certificate, error) {
	certificates, err := parseCertificates(pemBytes)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("%w: %d certificates where one is expected: further ones go to %s",
			ErrInvalid, len(certificates), KeyBundle)
	}
	certificate := certificates[0]
	if err := checkCA(certificate); err != nil {
		return nil, err
	}
	if certificate.KeyUsage&x509.KeyUsageCertSign == 0 {
		return nil, fmt.Errorf("%w: key usage does not allow to sign certificates", ErrInvalid)
	}
	if now.Before(certificate.NotBefore) || now.After(certificate.NotAfter) {
		return nil, fmt.Errorf("%w: valid from %s to %s, and it is %s", ErrInvalid, certificate.NotBefore.UTC().Format(time.RFC3339),
			certificate.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return certificate, nil
}

func checkCA(certificate *x509.Certificate) error {
	if !certificate.IsCA || !certificate.BasicConstraintsValid {
		return fmt.Errorf("%w: %q is not a certificate of a CA", ErrInvalid, certificate.Subject)
	}
	return nil
}

func parseBundle(pemBytes []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(pemBytes)) == 0 {
		return nil, nil
	}
	certificates, err := parseCertificates(pemBytes)
	if err != nil {
		return nil, err
	}
	if len(certificates) > maxBundle {
		return nil, fmt.Errorf("%w: %d certificates, the limit is %d", ErrInvalid, len(certificates), maxBundle)
	}
	for _, certificate := range certificates {
		if err := checkCA(certificate); err != nil {
			return nil, err
		}
	}
	return certificates, nil
}

func parseCertificates(rest []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for len(bytes.TrimSpace(rest)) > 0 {
		var block *pem.Block
		// Anything that is not PEM ends the file with an error: a truncated
		// bundle must not be taken for a shorter one.
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%w: not a PEM file of certificates alone", ErrInvalid)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		certificates = append(certificates, certificate)
	}
	return certificates, nil
}

func parsePrivateKey(pemBytes []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(pemBytes)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%w: not a PEM file of one private key", ErrInvalid)
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	// The parsers' own errors are left out: they speak of bytes of the key.
	return nil, fmt.Errorf("%w: neither a PKCS#8 nor a SEC 1 nor a PKCS#1 private key", ErrInvalid)
}

func parseHubID(raw []byte, certificate *x509.Certificate) (string, error) {
	id := strings.TrimSpace(string(raw))
	if err := identity.ValidateID(id); err != nil {
		return "", fmt.Errorf("%s: %w: %w", KeyHubID, ErrInvalid, err)
	}
	for _, uri := range certificate.URIs {
		if uri.Scheme == "spiffe" && uri.String() != trustDomain(id).String() {
			return "", fmt.Errorf("%w: %s belongs to hub %q, %s says %q",
				ErrMismatch, KeyCertificate, uri.Host, KeyHubID, id)
		}
	}
	return id, nil
}

func equalPublicKeys(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

func trustDomain(id string) *url.URL { return &url.URL{Scheme: "spiffe", Host: id} }

func fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:])
}

func encodeCertificates(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

// newSerial is 127 random bits: positive and at most 20 octets (RFC 5280,
// section 4.1.2.2), and never twice the same without a record of the last one.
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	return serial, nil
}
