// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"
)

func TestServingCertificateIsRenewedFromIssuer(t *testing.T) {
	first, firstKey := selfSigned(t, 1)
	second, secondKey := selfSigned(t, 2)
	errBoom := errors.New("boom")
	chain, key, failure := first, firstKey, error(nil)
	c, err := NewServingCertificate(func() ([]byte, []byte, error) { return chain, key, failure })
	if err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		reason     string
		chain, key []byte
		failure    error
		want       []byte
	}{
		{reason: "the first is shown", chain: first, key: firstKey, want: first},
		{reason: "one that was renewed is shown without being told", chain: second, key: secondKey, want: second},
		{reason: "an issuer that fails leaves the last good one", failure: errBoom, want: second},
		{reason: "a key of another certificate leaves the last good one", chain: first, key: secondKey, want: second},
	}
	for _, step := range steps {
		chain, key, failure = step.chain, step.key, step.failure
		if got, _ := c.CurrentCertKeyContent(); !bytes.Equal(got, step.want) {
			t.Errorf("%s: another certificate is shown", step.reason)
		}
	}
	failure = errBoom
	if err := c.Refresh(); err == nil {
		t.Error("an issuer that fails is reported")
	}
}

func selfSigned(t testing.TB, serial int64) (chain, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}
