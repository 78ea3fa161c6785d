// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// FuzzAnswer reads what a hub answers, or what lies in the Secret: a chain and a
// bundle, PEM. Nothing passes but a certificate of our key and our cluster that
// an authority of the bundle has signed.
func FuzzAnswer(f *testing.F) {
	pair, err := newPrivateKey()
	if err != nil {
		f.Fatal(err)
	}
	authority := newCA(f)
	chain := authority.sign(store(idOne), pair.key.Public(), time.Unix(1800000000, 0))
	f.Add(chain, authority.pem())
	f.Add(append(bytes.Clone(chain), authority.pem()...), authority.pem())
	f.Add(authority.pem(), chain)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), authority.pem())
	f.Add(chain[:len(chain)/2], []byte{})
	f.Fuzz(func(t *testing.T, chain, bundle []byte) {
		got, err := parseCredentials(pair.key, store1, chain, bundle)
		if err != nil {
			if !errors.Is(err, ErrAnswer) || got != nil {
				t.Fatalf("parseCredentials() = %v, %v, want ErrAnswer alone", got, err)
			}
			return
		}
		if got.cluster.Name != store1 {
			t.Fatalf("accepted as %v", got.cluster)
		}
		if err := got.leaf().CheckSignatureFrom(authority.certificate); err != nil {
			t.Fatalf("accepted, and not signed by the one authority that there is: %v", err)
		}
	})
}

// FuzzPrivateKey reads the key of a Secret that others may have written.
func FuzzPrivateKey(f *testing.F) {
	pair, err := newPrivateKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pair.pem)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		key, err := parsePrivateKey(raw)
		if (key == nil) == (err == nil) || err != nil && !errors.Is(err, ErrSecret) {
			t.Fatalf("parsePrivateKey() = %v, %v", key, err)
		}
		if err != nil && len(raw) > 64 && bytes.Contains([]byte(err.Error()), raw[:64]) {
			t.Fatal("the error tells what was in the Secret")
		}
	})
}
