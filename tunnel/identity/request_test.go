// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"testing"
)

func parseRequest(tb testing.TB, der []byte) *x509.CertificateRequest {
	tb.Helper()
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		tb.Fatal(err)
	}
	return csr
}

func TestCheckRequestAcceptsRequestForItsOwnCluster(t *testing.T) {
	cases := map[string]struct {
		reason  string
		cluster Cluster
		uris    int
	}{
		"joining":  {"only the name is known", Cluster{Name: "store1"}, 0},
		"renewing": {"the identity is known", store1, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			der, err := NewRequest(newKey(t), tc.cluster)
			if err != nil {
				t.Fatal(err)
			}
			csr := parseRequest(t, der)
			if csr.Subject.CommonName != "store1" || len(csr.URIs) != tc.uris {
				t.Errorf("%s: common name %q, URIs %v, want store1 and %d", tc.reason, csr.Subject.CommonName, csr.URIs, tc.uris)
			}
			if err := CheckRequest(csr, store1); err != nil {
				t.Errorf("%s: CheckRequest() = %v", tc.reason, err)
			}
		})
	}
}

func TestNewRequestRefusesIncompleteCluster(t *testing.T) {
	cases := map[string]struct {
		reason  string
		cluster Cluster
		want    error
	}{
		"nothing":     {"no name", Cluster{}, ErrName},
		"a bad name":  {"not a label", Cluster{Name: "Store 1"}, ErrName},
		"no id":       {"half an identity", Cluster{HubID: hubID, Name: "store1"}, ErrID},
		"no hub":      {"half an identity", Cluster{Name: "store1", ID: clusterID}, ErrID},
		"only the id": {"no name", Cluster{HubID: hubID, ID: clusterID}, ErrName},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := NewRequest(newKey(t), tc.cluster); !errors.Is(err, tc.want) {
				t.Errorf("%s: NewRequest(%+v) = %v, want %v", tc.reason, tc.cluster, err, tc.want)
			}
		})
	}
}

func TestCheckRequestRefusesHostileRequest(t *testing.T) {
	change := func(cluster Cluster) []*url.URL { return []*url.URL{cluster.URI()} }
	cases := map[string]struct {
		reason   string
		template x509.CertificateRequest
		want     error
	}{
		"a longer name":       {"OCM CVE-2026-4740: store1 is its prefix", x509.CertificateRequest{Subject: pkix.Name{CommonName: "store1xyz"}}, ErrSubject},
		"a shorter name":      {"prefix of store1", x509.CertificateRequest{Subject: pkix.Name{CommonName: "store"}}, ErrSubject},
		"another name":        {"other cluster", x509.CertificateRequest{Subject: pkix.Name{CommonName: "store2"}}, ErrSubject},
		"an upper case name":  {"names match exactly", x509.CertificateRequest{Subject: pkix.Name{CommonName: "Store1"}}, ErrSubject},
		"a name with NUL":     {"C readers stop there", x509.CertificateRequest{Subject: pkix.Name{CommonName: "store1\x00.evil"}}, ErrSubject},
		"OCM's common name":   {"a user of another system", x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:open-cluster-management:store1:agent"}}, ErrSubject},
		"an organisation":     {"a group to Kubernetes", x509.CertificateRequest{Subject: pkix.Name{CommonName: "store1", Organization: []string{"system:masters"}}}, ErrSubject},
		"a unit":              {"more than a name", x509.CertificateRequest{Subject: pkix.Name{OrganizationalUnit: []string{"store1"}}}, ErrSubject},
		"a serial number":     {"more than a name", x509.CertificateRequest{Subject: pkix.Name{CommonName: "store1", SerialNumber: "1"}}, ErrSubject},
		"another name's URI":  {"other cluster", x509.CertificateRequest{URIs: change(Cluster{hubID, "store2", clusterID})}, ErrURI},
		"a longer name's URI": {"OCM CVE-2026-4740", x509.CertificateRequest{URIs: change(Cluster{hubID, "store1xyz", clusterID})}, ErrURI},
		"another id's URI":    {"the cluster of that name before", x509.CertificateRequest{URIs: change(Cluster{hubID, "store1", otherID})}, ErrURI},
		"another hub's URI":   {"other hub", x509.CertificateRequest{URIs: change(Cluster{otherID, "store1", clusterID})}, ErrURI},
		"the hub's URI":       {"would be the hub", x509.CertificateRequest{URIs: []*url.URL{Hub{ID: hubID}.URI()}}, ErrURI},
		"its URI twice":       {"one name, once", x509.CertificateRequest{URIs: append(change(store1), store1.URI())}, ErrNames},
		"two URIs":            {"which one counts", x509.CertificateRequest{URIs: append(change(store1), Hub{ID: hubID}.URI())}, ErrNames},
		"a DNS name":          {"would verify as a server", x509.CertificateRequest{URIs: change(store1), DNSNames: []string{"hub.example.com"}}, ErrNames},
		"an IP address":       {"would verify as a server", x509.CertificateRequest{IPAddresses: []net.IP{{127, 0, 0, 1}}}, ErrNames},
		"an e-mail address":   {"a user to others", x509.CertificateRequest{EmailAddresses: []string{"a@example.com"}}, ErrNames},
		"a CA flag": {"basic constraints", x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}},
		}}, ErrClaim},
		"a key usage": {"the issuer decides", x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Value: []byte{3, 2, 2, 4}},
		}}, ErrClaim},
		"an unknown extension": {"nothing is copied", x509.CertificateRequest{ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: []byte{5, 0}},
		}}, ErrClaim},
		"another attribute": {"a challenge password", x509.CertificateRequest{
			Attributes: []pkix.AttributeTypeAndValueSET{{ //nolint:staticcheck // the deprecated way is the hostile one
				Type:  asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7},
				Value: [][]pkix.AttributeTypeAndValue{{{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "x"}}},
			}},
		}, ErrClaim},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			der, err := x509.CreateCertificateRequest(rand.Reader, &tc.template, newKey(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckRequest(parseRequest(t, der), store1); !errors.Is(err, tc.want) {
				t.Errorf("%s: CheckRequest() = %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestCheckRequestRefusesForeignSignature(t *testing.T) {
	der, err := NewRequest(newKey(t), store1)
	if err != nil {
		t.Fatal(err)
	}
	csr := parseRequest(t, der)
	csr.PublicKey = newKey(t).Public()
	if err := CheckRequest(csr, store1); !errors.Is(err, ErrSignature) {
		t.Errorf("CheckRequest() = %v, want %v", err, ErrSignature)
	}
}

func TestCheckRequestRefusesWeakKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{store1.URI()}}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckRequest(parseRequest(t, der), store1); !errors.Is(err, ErrWeakKey) {
		t.Errorf("CheckRequest() = %v, want %v", err, ErrWeakKey)
	}
}

func TestCheckRequestRefusesInvalidCluster(t *testing.T) {
	der, err := NewRequest(newKey(t), Cluster{Name: "store1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckRequest(parseRequest(t, der), Cluster{Name: "store1"}); !errors.Is(err, ErrID) {
		t.Errorf("CheckRequest(no ids) = %v, want %v", err, ErrID)
	}
}

func FuzzRequest(f *testing.F) {
	der, err := NewRequest(newKey(f), store1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Fuzz(func(t *testing.T, der []byte) {
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil {
			return
		}
		// The signature is left out, else no mutation passes the first check.
		if checkClaims(csr, store1) != nil {
			return
		}
		if len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.EmailAddresses) != 0 || len(csr.URIs) > 1 {
			t.Error("accepted in spite of other names")
		}
		for _, u := range csr.URIs {
			if u.String() != store1.String() {
				t.Errorf("accepted for %s", u)
			}
		}
		if cn := csr.Subject.CommonName; cn != "" && cn != store1.Name {
			t.Errorf("accepted for common name %q", cn)
		}
	})
}
