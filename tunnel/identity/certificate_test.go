// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
)

func TestClusterOfReadsCertificate(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(*x509.Certificate)
		key    crypto.Signer
	}{
		"the plain form":      {"no subject", func(*x509.Certificate) {}, newKey(t)},
		"a common name":       {"may repeat the name", func(c *x509.Certificate) { c.Subject.CommonName = "store1" }, newKey(t)},
		"no key usage":        {"the extension is optional", func(c *x509.Certificate) { c.KeyUsage = 0 }, newKey(t)},
		"the usages reversed": {"order means nothing", func(c *x509.Certificate) { c.ExtKeyUsage[0], c.ExtKeyUsage[1] = c.ExtKeyUsage[1], c.ExtKeyUsage[0] }, newKey(t)},
		"RSA 2048":            {"the weakest RSA", func(*x509.Certificate) {}, rsaKey},
		"Ed25519":             {"a strong key", func(*x509.Certificate) {}, edKey},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tmpl := template()
			tc.change(tmpl)
			got, err := ClusterOf(certificate(t, tmpl, tc.key))
			if err != nil || got != store1 {
				t.Errorf("%s: ClusterOf() = %v, %v, want %v", tc.reason, got, err, store1)
			}
		})
	}
}

func TestHubOfReadsCertificate(t *testing.T) {
	hub := Hub{ID: hubID}
	tmpl := template()
	tmpl.URIs = []*url.URL{hub.URI()}
	cert := certificate(t, tmpl, newKey(t))
	if got, err := HubOf(cert); err != nil || got != hub {
		t.Errorf("HubOf() = %v, %v, want %v", got, err, hub)
	}
	if got, err := ClusterOf(cert); !errors.Is(err, ErrURI) {
		t.Errorf("ClusterOf(hub's certificate) = %v, %v, want %v", got, err, ErrURI)
	}
	if got, err := HubOf(certificate(t, template(), newKey(t))); !errors.Is(err, ErrURI) {
		t.Errorf("HubOf(cluster's certificate) = %v, %v, want %v", got, err, ErrURI)
	}
}

func TestClusterOfRefusesHostileCertificate(t *testing.T) {
	const uri = "spiffe://" + hubID + "/cluster/store1/" + clusterID
	raw := func(names ...generalName) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			c.ExtraExtensions = []pkix.Extension{altNames(t, names...)}
		}
	}
	cases := map[string]struct {
		reason string
		change func(*x509.Certificate)
		want   error
	}{
		"a prefix as common name":     {"OCM CVE-2026-4740", func(c *x509.Certificate) { c.Subject.CommonName = "store" }, ErrSubject},
		"a suffix on the common name": {"OCM CVE-2026-4740", func(c *x509.Certificate) { c.Subject.CommonName = "store1xyz" }, ErrSubject},
		"another common name":         {"two readers, two answers", func(c *x509.Certificate) { c.Subject.CommonName = "store2" }, ErrSubject},
		"a common name with NUL":      {"C readers stop there", func(c *x509.Certificate) { c.Subject.CommonName = "store1\x00" }, ErrSubject},
		"an upper case common name":   {"names match exactly", func(c *x509.Certificate) { c.Subject.CommonName = "STORE1" }, ErrSubject},
		"an organisation":             {"a group to Kubernetes", func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, ErrSubject},
		"name and organisation":       {"a group to Kubernetes", func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "store1", Organization: []string{"x"}} }, ErrSubject},
		"two common names": {"readers differ on which counts", func(c *x509.Certificate) {
			c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: oidCommonName, Value: "store1"}, {Type: oidCommonName, Value: "store1"}}
		}, ErrSubject},
		"no names":                   {"the subject is no identity", func(c *x509.Certificate) { c.URIs = nil; c.Subject.CommonName = "store1" }, ErrNames},
		"two URIs":                   {"which one counts", func(c *x509.Certificate) { c.URIs = append(c.URIs, store1.URI()) }, ErrNames},
		"a URI of the hub too":       {"which one counts", func(c *x509.Certificate) { c.URIs = append(c.URIs, Hub{ID: hubID}.URI()) }, ErrNames},
		"a DNS name":                 {"would verify as a web server", func(c *x509.Certificate) { c.DNSNames = []string{"store1"} }, ErrNames},
		"a wildcard":                 {"would verify as any server", func(c *x509.Certificate) { c.DNSNames = []string{"*.example.com"} }, ErrNames},
		"only a wildcard":            {"no identity", func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"*"} }, ErrNames},
		"an IP address":              {"would verify as a server", func(c *x509.Certificate) { c.IPAddresses = []net.IP{{127, 0, 0, 1}} }, ErrNames},
		"an e-mail address":          {"a user to others", func(c *x509.Certificate) { c.EmailAddresses = []string{"a@example.com"} }, ErrNames},
		"an other name":              {"crypto/x509 skips it", raw(uriName(uri), generalName{tag: 0, compound: true}), ErrNames},
		"a directory name":           {"crypto/x509 skips it", raw(uriName(uri), generalName{tag: 4, compound: true}), ErrNames},
		"a registered id":            {"crypto/x509 skips it", raw(uriName(uri), generalName{tag: 8, value: "*"}), ErrNames},
		"no alternative name at all": {"an empty list", raw(), ErrNames},
		"an escaped name":            {"net/url would decode it", raw(uriName(strings.Replace(uri, "store1", "stor%651", 1))), ErrURI},
		"an upper case scheme":       {"net/url would lower it", raw(uriName(strings.Replace(uri, "spiffe", "SPIFFE", 1))), ErrURI},
		"an empty fragment":          {"net/url would drop it", raw(uriName(uri + "#")), ErrURI},
		"an empty query":             {"net/url keeps a flag only", raw(uriName(uri + "?")), ErrURI},
		"user information":           {"not in the grammar", raw(uriName(strings.Replace(uri, "://", "://a@", 1))), ErrURI},
		"a port":                     {"not in the grammar", raw(uriName(strings.Replace(uri, hubID, hubID+":443", 1))), ErrURI},
		"an empty name":              {"an empty part", raw(uriName(strings.Replace(uri, "store1", "", 1))), ErrURI},
		"only server authentication": {"an agent is a client first", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, ErrUsage},
		"only client authentication": {"an agent is a server in the session", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, ErrUsage},
		"any usage":                  {"the joker", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, ErrUsage},
		"client twice":               {"two usages, not the two", func(c *x509.Certificate) { c.ExtKeyUsage[1] = x509.ExtKeyUsageClientAuth }, ErrUsage},
		"code signing too":           {"more than a peer", func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) }, ErrUsage},
		"an unknown usage too":       {"more than a peer", func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }, ErrUsage},
		"no usages":                  {"means any usage", func(c *x509.Certificate) { c.ExtKeyUsage = nil }, ErrUsage},
		"certificate signing":        {"a peer signs nothing", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, ErrUsage},
		"a CA":                       {"a peer signs nothing", func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, ErrAuthority},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tmpl := template()
			tc.change(tmpl)
			got, err := ClusterOf(certificate(t, tmpl, newKey(t)))
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: ClusterOf() = %v, %v, want %v", tc.reason, got, err, tc.want)
			}
			if got != (Cluster{}) {
				t.Errorf("%s: ClusterOf() = %v beside an error", tc.reason, got)
			}
			if hub, err := HubOf(certificate(t, tmpl, newKey(t))); err == nil {
				t.Errorf("%s: HubOf() = %v, want an error", tc.reason, hub)
			}
		})
	}
}

func TestClusterOfRefusesWeakKey(t *testing.T) {
	// Go refuses to make or use an RSA key of 1024 bits, not to parse one: the
	// certificate carries it and another key signs.
	t.Setenv("GODEBUG", "rsa1024min=0")
	rsa1024, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"RSA 1024": rsa1024, "P-224": p224} {
		t.Run(name, func(t *testing.T) {
			issuer := newKey(t)
			der, err := x509.CreateCertificate(rand.Reader, template(), template(), key.Public(), issuer)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ClusterOf(cert); !errors.Is(err, ErrWeakKey) {
				t.Errorf("ClusterOf() = %v, %v, want %v", got, err, ErrWeakKey)
			}
			if _, err := NewRequest(key, store1); !errors.Is(err, ErrWeakKey) {
				t.Errorf("NewRequest() = %v, want %v", err, ErrWeakKey)
			}
		})
	}
}

func FuzzCertificate(f *testing.F) {
	key := newKey(f)
	cluster, err := sign(f, template(), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cluster)
	f.Fuzz(func(t *testing.T, der []byte) {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		if c, err := ClusterOf(cert); err == nil {
			onlyURI(t, cert, c.String())
		}
		if h, err := HubOf(cert); err == nil {
			onlyURI(t, cert, h.String())
		}
	})
}

// onlyURI checks an accepted certificate against what crypto/x509 reads.
func onlyURI(t *testing.T, cert *x509.Certificate, want string) {
	t.Helper()
	if len(cert.URIs) != 1 || cert.URIs[0].String() != want {
		t.Errorf("accepted as %s, crypto/x509 reads %v", want, cert.URIs)
	}
	if len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) != 0 || cert.IsCA {
		t.Errorf("accepted as %s in spite of other names or a CA flag", want)
	}
}

func FuzzURI(f *testing.F) {
	f.Add(store1.String())
	f.Add(Hub{ID: hubID}.String())
	f.Fuzz(func(t *testing.T, uri string) {
		c, err := ParseCluster(uri)
		if err == nil && c.String() != uri {
			t.Errorf("ParseCluster(%q) reads another spelling of %s", uri, c)
		}
		h, hubErr := ParseHub(uri)
		if hubErr == nil && h.String() != uri {
			t.Errorf("ParseHub(%q) reads another spelling of %s", uri, h)
		}
		if err == nil && hubErr == nil {
			t.Errorf("%q is both a hub and a cluster", uri)
		}
	})
}
