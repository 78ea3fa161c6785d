// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestIssueGivesCertificatesThatTheirAuthorityVouchesFor(t *testing.T) {
	cases := map[string]struct {
		reason   string
		request  Request
		verify   x509.VerifyOptions
		accepted bool
	}{
		"a client as a client": {
			reason:   "every certificate can be presented to a server",
			request:  Request{File: "client", CommonName: "admin", Organization: "system:masters"},
			verify:   x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
			accepted: true,
		},
		"a client as a server": {
			reason:  "without a name or an address it serves nothing",
			request: Request{File: "client", CommonName: "admin"},
			verify:  x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		},
		"a server by its name": {
			reason:   "names are subject alternative names",
			request:  Request{File: "server", CommonName: "x", Names: []string{"kubernetes.default"}},
			verify:   x509.VerifyOptions{DNSName: "kubernetes.default"},
			accepted: true,
		},
		"a server by its address": {
			reason:   "addresses are, too: there is no DNS",
			request:  Request{File: "server", CommonName: "x", Addresses: []netip.Addr{netip.MustParseAddr("10.192.0.2")}},
			verify:   x509.VerifyOptions{DNSName: "10.192.0.2"},
			accepted: true,
		},
		"a server by another's address": {
			reason:  "a certificate is for what was asked",
			request: Request{File: "server", CommonName: "x", Addresses: []netip.Addr{netip.MustParseAddr("10.192.0.2")}},
			verify:  x509.VerifyOptions{DNSName: "10.192.0.3"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			authority, err := NewAuthority(dir, "ca")
			if err != nil {
				t.Fatal(err)
			}
			if err := authority.Issue(tc.request); err != nil {
				t.Fatal(err)
			}
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, tc.request.File+".crt"), filepath.Join(dir, tc.request.File+".key"))
			if err != nil {
				t.Fatal(err)
			}
			ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
			if err != nil {
				t.Fatal(err)
			}
			tc.verify.Roots = x509.NewCertPool()
			tc.verify.Roots.AppendCertsFromPEM(ca)
			if _, err := pair.Leaf.Verify(tc.verify); (err == nil) != tc.accepted {
				t.Errorf("verification: %v, want accepted %t: %s", err, tc.accepted, tc.reason)
			}
		})
	}
}

func TestKeysAreReadableByTheirOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewAuthority(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	if err := SigningKey(dir, "service-account"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.key", "service-account.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}
