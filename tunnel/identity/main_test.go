// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	hubID     = "6ff1b52e-0c2c-4d6a-9d5b-2f2f0f3a9a11"
	clusterID = "0b9cf2f5-8d0e-4b7f-8a4e-5a5c3c1d2e3f"
	otherID   = "11111111-2222-4333-8444-555555555555"
)

var store1 = Cluster{HubID: hubID, Name: "store1", ID: clusterID}

func newKey(tb testing.TB) crypto.Signer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// template is a certificate that ClusterOf accepts as store1's.
func template() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(1700000000, 0),
		NotAfter:     time.Unix(1900000000, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:         []*url.URL{store1.URI()},
	}
}

func sign(tb testing.TB, template *x509.Certificate, key crypto.Signer) ([]byte, error) {
	tb.Helper()
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
}

func certificate(tb testing.TB, template *x509.Certificate, key crypto.Signer) *x509.Certificate {
	tb.Helper()
	der, err := sign(tb, template, key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// generalName is one raw entry of the subject alternative names.
type generalName struct {
	tag      int
	compound bool
	value    string
}

func uriName(value string) generalName { return generalName{tag: tagURI, value: value} }

// altNames encodes names that crypto/x509 would not write.
func altNames(tb testing.TB, names ...generalName) pkix.Extension {
	tb.Helper()
	raw := make([]asn1.RawValue, 0, len(names))
	for _, n := range names {
		raw = append(raw, asn1.RawValue{
			Class: asn1.ClassContextSpecific, Tag: n.tag, IsCompound: n.compound, Bytes: []byte(n.value),
		})
	}
	der, err := asn1.Marshal(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return pkix.Extension{Id: oidSubjectAltName, Value: der}
}
