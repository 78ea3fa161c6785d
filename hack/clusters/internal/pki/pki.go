// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki issues the keys and certificates of one test cluster: three
// authorities (cluster, front proxy, etcd) and what each component needs of
// them, laid out in one directory as PEM files.
//
// They are for clusters that live for hours on one machine: keys are written
// unencrypted (mode 0600) and nothing rotates.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// validity of every certificate; one machine's clock is the only one involved.
const validity = 10 * 365 * 24 * time.Hour

// Authority is a certificate authority whose files are <dir>/<name>.crt and .key.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
}

// Request is one certificate to issue. With Names or Addresses it serves; it
// can always act as a client.
type Request struct {
	File         string // base name, without extension
	CommonName   string
	Organization string
	Names        []string
	Addresses    []netip.Addr
}

// NewAuthority makes an authority and writes it into dir.
func NewAuthority(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	template, err := template(pkix.Name{CommonName: name})
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	authority := &Authority{dir: dir, certificate: certificate, key: key}
	return authority, write(filepath.Join(dir, name), der, key)
}

// Issue makes a key and a certificate and writes them beside the authority's.
func (a *Authority) Issue(request Request) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", request.File, err)
	}
	subject := pkix.Name{CommonName: request.CommonName}
	if request.Organization != "" {
		subject.Organization = []string{request.Organization}
	}
	template, err := template(subject)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", request.File, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(request.Names)+len(request.Addresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.DNSNames = request.Names
	for _, address := range request.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", request.File, err)
	}
	return write(filepath.Join(a.dir, request.File), der, key)
}

// SigningKey writes a key pair, <name>.key and <name>.pub, for service account
// tokens, which are signed by a bare key.
func SigningKey(dir, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(dir, name+".pub"), "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, name+".key"), key)
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(validity),
	}, nil
}

func write(base string, der []byte, key *ecdsa.PrivateKey) error {
	if err := writePEM(base+".crt", "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(base+".key", key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("key %s: %w", path, err)
	}
	return writePEM(path, "PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
