// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
)

// twists make of a part of an identity something that a careless reader takes
// for that part.
var twists = map[string]func(string) string{
	"nothing":              func(string) string { return "" },
	"a suffix":             func(s string) string { return s + "x" },
	"a prefix":             func(s string) string { return "x" + s },
	"its beginning":        func(s string) string { return s[:len(s)-1] },
	"its end":              func(s string) string { return s[1:] },
	"upper case":           func(s string) string { return strings.ToUpper(s) + "A" },
	"a trailing NUL":       func(s string) string { return s + "\x00" },
	"NUL and more":         func(s string) string { return s + "\x00.example.com" },
	"a trailing dot":       func(s string) string { return s + "." },
	"a trailing dash":      func(s string) string { return s + "-" },
	"a leading dash":       func(s string) string { return "-" + s },
	"a trailing space":     func(s string) string { return s + " " },
	"a newline":            func(s string) string { return s + "\n" },
	"a tab":                func(s string) string { return "\t" + s },
	"a slash":              func(s string) string { return s + "/" },
	"a slash within":       func(s string) string { return s[:2] + "/" + s[2:] },
	"an escaped slash":     func(s string) string { return s[:2] + "%2f" + s[2:] },
	"an escaped letter":    func(s string) string { return "%" + "73" + s[1:] },
	"a step up":            func(s string) string { return s + "/../" + s },
	"a dot segment":        func(s string) string { return "./" + s },
	"a wildcard":           func(string) string { return "*" },
	"a wildcard within":    func(s string) string { return s[:2] + "*" },
	"a query":              func(s string) string { return s + "?a=b" },
	"a fragment":           func(s string) string { return s + "#a" },
	"a semicolon":          func(s string) string { return s + ";a" },
	"a comma and another":  func(s string) string { return s + "," + s },
	"a full-width letter":  func(s string) string { return "\uff53" + s[1:] },
	"a Cyrillic letter":    func(s string) string { return s[:1] + "\u043e" + s[1:] },
	"a zero-width space":   func(s string) string { return s + "\u200b" },
	"a right-to-left mark": func(s string) string { return "\u202e" + s },
	"a combining accent":   func(s string) string { return s + "\u0301" },
	"broken UTF-8":         func(s string) string { return s + "\xff" },
	"itself twice":         func(s string) string { return s + s },
	"its length":           func(s string) string { return strings.Repeat(s, 20) },
	"a user of Kubernetes": func(string) string { return "system:masters" },
	"a colon":              func(s string) string { return s + ":443" },
	"an at sign":           func(s string) string { return "a@" + s },
	"backslashes":          func(s string) string { return `..\` + s },
	"quotes":               func(s string) string { return `"` + s + `"` },
}

// hostileURIs are store1's URI with one part twisted.
func hostileURIs() map[string]string {
	all := map[string]string{}
	for twist, apply := range twists {
		for part, uri := range map[string]string{
			"hub id":     "spiffe://" + apply(hubID) + "/cluster/store1/" + clusterID,
			"the word":   "spiffe://" + hubID + "/" + apply("cluster") + "/store1/" + clusterID,
			"name":       "spiffe://" + hubID + "/cluster/" + apply("store1") + "/" + clusterID,
			"cluster id": "spiffe://" + hubID + "/cluster/store1/" + apply(clusterID),
		} {
			all[part+" with "+twist] = uri
		}
	}
	return all
}

// TestParseClusterRefusesOtherSpellings puts each URI into a certificate and a request,
// as raw bytes where crypto/x509 would not write it. What crypto/x509 does not
// refuse to parse is refused here, or is an identity of its own that is spelt
// just so.
func TestParseClusterRefusesOtherSpellings(t *testing.T) {
	key := newKey(t)
	uris := hostileURIs()
	if len(uris) < 150 {
		t.Fatalf("%d variants, want 150", len(uris))
	}
	for name, uri := range uris {
		if c, err := ParseCluster(uri); err == nil && (c == store1 || c.String() != uri) {
			t.Errorf("%s: ParseCluster(%q) = %v", name, uri, c)
		}
		tmpl := template()
		tmpl.URIs = nil
		tmpl.ExtraExtensions = []pkix.Extension{altNames(t, uriName(uri))}
		der, err := sign(t, tmpl, key)
		if err != nil {
			t.Fatal(err)
		}
		if cert, err := x509.ParseCertificate(der); err == nil {
			if c, err := ClusterOf(cert); err == nil && (c == store1 || c.String() != uri) {
				t.Errorf("%s: ClusterOf() = %v", name, c)
			}
		}
		der, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			ExtraExtensions: []pkix.Extension{altNames(t, uriName(uri))},
		}, key)
		if err != nil {
			t.Fatal(err)
		}
		if csr, err := x509.ParseCertificateRequest(der); err == nil {
			if err := CheckRequest(csr, store1); err == nil {
				t.Errorf("%s: CheckRequest() lets %q pass for %v", name, uri, store1)
			}
		}
	}
}

// TestClusterOfRefusesOtherNames puts each name where the common name stands.
func TestClusterOfRefusesOtherNames(t *testing.T) {
	key := newKey(t)
	for twist, apply := range twists {
		name := apply("store1")
		if name == "" {
			continue // no common name is the plain form
		}
		subject := pkix.Name{CommonName: name}
		tmpl := template()
		tmpl.Subject = subject
		if der, err := sign(t, tmpl, key); err == nil {
			if cert, err := x509.ParseCertificate(der); err == nil {
				if c, err := ClusterOf(cert); err == nil {
					t.Errorf("%s: a certificate of %q is that of %v", twist, name, c)
				}
			}
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		if err != nil {
			continue // not to be written, and so not to be sent
		}
		if csr, err := x509.ParseCertificateRequest(der); err == nil && CheckRequest(csr, store1) == nil {
			t.Errorf("%s: CheckRequest() lets %q pass for %v", twist, name, store1)
		}
	}
}
