// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/tunnel/identity"
)

const clusterID = "0b9cf2f5-8d0e-4b7f-8a4e-5a5c3c1d2e3f"

// clock is a time that tests move.
type clock struct{ at time.Time }

func newClock() *clock { return &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.at }

func config(clients *fake.Clientset, clock *clock) Config {
	return Config{Secrets: clients.CoreV1(), Namespace: "hub", Now: clock.now, Logger: logr.Discard()}
}

func open(t *testing.T, clients *fake.Clientset, clock *clock) *Authority {
	t.Helper()
	a, err := Open(t.Context(), config(clients, clock))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func secretOf(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: DefaultSecretName}, Data: data}
}

func material1(t *testing.T, clock *clock) map[string][]byte {
	t.Helper()
	data, err := newMaterial(clock.now())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newRequest(t *testing.T, cluster identity.Cluster) *x509.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := identity.NewRequest(key, cluster)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func leafOf(t *testing.T, chain []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(chain)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestOpenLoadsOrCreatesSecret(t *testing.T) {
	t.Run("The second start finds what the first one made", func(t *testing.T) {
		clients, clock := fake.NewSimpleClientset(), newClock()
		first, second := open(t, clients, clock), open(t, clients, clock)
		if first.HubID() != second.HubID() || first.Fingerprint() != second.Fingerprint() {
			t.Errorf("hub id and fingerprint changed: %s %s, then %s %s",
				first.HubID(), first.Fingerprint(), second.HubID(), second.Fingerprint())
		}
		if err := identity.ValidateID(first.HubID()); err != nil {
			t.Error(err)
		}
	})

	t.Run("Replicas that start together agree on one", func(t *testing.T) {
		clients, clock := fake.NewSimpleClientset(), newClock()
		var group sync.WaitGroup
		prints := make([]string, 8)
		for i := range prints {
			group.Go(func() {
				a, err := Open(t.Context(), config(clients, clock))
				if err != nil {
					t.Error(err)
					return
				}
				prints[i] = a.HubID() + a.Fingerprint()
			})
		}
		group.Wait()
		for _, got := range prints {
			if got != prints[0] {
				t.Fatalf("replicas differ: %q", prints)
			}
		}
	})

	t.Run("The fingerprint is the SHA-256 of the CA certificate", func(t *testing.T) {
		clock := newClock()
		data := material1(t, clock)
		a := open(t, fake.NewSimpleClientset(secretOf(data)), clock)
		block, _ := pem.Decode(data[KeyCertificate])
		sum := sha256.Sum256(block.Bytes)
		if got, want := a.Fingerprint(), hex.EncodeToString(sum[:]); got != want {
			t.Errorf("fingerprint %s, want %s", got, want)
		}
	})
}

func TestOpenRefusesInvalidSecret(t *testing.T) {
	clock := newClock()
	good, other := material1(t, clock), material1(t, clock)
	with := func(changes map[string][]byte) map[string][]byte {
		data := maps.Clone(good)
		maps.Copy(data, changes)
		return data
	}
	a := open(t, fake.NewSimpleClientset(secretOf(good)), clock)
	leaf, _, err := a.IssueCluster(identity.Cluster{HubID: a.HubID(), Name: "store1", ID: clusterID},
		newRequest(t, identity.Cluster{Name: "store1"}))
	if err != nil {
		t.Fatal(err)
	}

	cases := map[string]struct {
		reason string
		data   map[string][]byte
		want   error
		says   string
	}{
		"An empty secret": {
			reason: "whoever made it meant to fill it: the hub must not replace a CA that is about to be restored",
			want:   ErrIncomplete, says: "ca.crt, ca.key, hub-id",
		},
		"A CA without its hub id": {
			reason: "a new id would make every agent a stranger",
			data:   with(map[string][]byte{KeyHubID: nil}), want: ErrIncomplete, says: "no hub-id",
		},
		"A CA without its key":     {data: with(map[string][]byte{KeyPrivateKey: {}}), want: ErrIncomplete, says: "no ca.key"},
		"A hub id without a CA":    {data: map[string][]byte{KeyHubID: good[KeyHubID]}, want: ErrIncomplete, says: "ca.crt, ca.key"},
		"The key of another CA":    {data: with(map[string][]byte{KeyPrivateKey: other[KeyPrivateKey]}), want: ErrMismatch},
		"The hub id of another CA": {data: with(map[string][]byte{KeyHubID: other[KeyHubID]}), want: ErrMismatch, says: "belongs to hub"},
		"A hub id that is no UUID": {data: with(map[string][]byte{KeyHubID: []byte("hub-1")}), want: ErrInvalid},
		"A leaf as CA":             {data: with(map[string][]byte{KeyCertificate: leaf}), want: ErrInvalid, says: "not a certificate of a CA"},
		"Two signing CAs": {
			reason: "which of them signs must not depend on their order",
			data:   with(map[string][]byte{KeyCertificate: append(append([]byte{}, good[KeyCertificate]...), other[KeyCertificate]...)}),
			want:   ErrInvalid, says: "2 certificates",
		},
		"A truncated bundle": {
			reason: "half a bundle must not be taken for a shorter one",
			data:   with(map[string][]byte{KeyBundle: other[KeyCertificate][:200]}), want: ErrInvalid, says: KeyBundle,
		},
		"A leaf in the bundle": {data: with(map[string][]byte{KeyBundle: leaf}), want: ErrInvalid},
		"Garbage as a key":     {data: with(map[string][]byte{KeyPrivateKey: []byte("garbage")}), want: ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clients := fake.NewSimpleClientset(secretOf(tc.data))
			_, err := Open(t.Context(), config(clients, clock))
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Open: %v, want %v with %q: %s", err, tc.want, tc.says, tc.reason)
			}
			secret, getErr := clients.CoreV1().Secrets("hub").Get(t.Context(), DefaultSecretName, metav1.GetOptions{})
			if getErr != nil {
				t.Fatal(getErr)
			}
			if diff := cmp.Diff(tc.data, secret.Data); diff != "" {
				t.Errorf("a refused secret was changed: %s", diff)
			}
		})
	}

	t.Run("A CA that has expired", func(t *testing.T) {
		_, err := parseMaterial(good, clock.now().Add(caLife+time.Hour))
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("parseMaterial: %v, want %v", err, ErrInvalid)
		}
	})
}

func TestIssueClusterSignsForClusterOnly(t *testing.T) {
	clock := newClock()
	a := open(t, fake.NewSimpleClientset(), clock)
	cluster := identity.Cluster{HubID: a.HubID(), Name: "store1", ID: clusterID}

	t.Run("The certificate is of exactly the cluster", func(t *testing.T) {
		chain, bundle, err := a.IssueCluster(cluster, newRequest(t, identity.Cluster{Name: "store1"}))
		if err != nil {
			t.Fatal(err)
		}
		leaf := leafOf(t, chain)
		got, err := identity.ClusterOf(leaf)
		if err != nil || got != cluster {
			t.Errorf("ClusterOf: %v, %v, want %v", got, err, cluster)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(bundle) {
			t.Fatal("the bundle holds no certificate")
		}
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: clock.now(), KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("usage %v: %v", usage, err)
			}
		}
		if want := clock.now().Add(-5 * time.Minute); !leaf.NotBefore.Equal(want) {
			t.Errorf("NotBefore %s, want %s: an agent's clock may be a little behind", leaf.NotBefore, want)
		}
		if want := clock.now().Add(DefaultCertificateLife); !leaf.NotAfter.Equal(want) {
			t.Errorf("NotAfter %s, want %s", leaf.NotAfter, want)
		}
	})

	t.Run("A cluster of another hub gets none", func(t *testing.T) {
		stranger := cluster
		stranger.HubID = identity.NewID()
		if _, _, err := a.IssueCluster(stranger, newRequest(t, stranger)); err == nil {
			t.Error("a certificate was issued in another hub's name")
		}
	})

	t.Run("No certificate outlives the CA", func(t *testing.T) {
		m, err := parseMaterial(material1(t, clock), clock.now())
		if err != nil {
			t.Fatal(err)
		}
		der, err := m.issue(newClusterTemplate(cluster), newRequest(t, cluster).PublicKey, DefaultCertificateLife, clock.now().Add(caLife-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if leaf.NotAfter.After(m.certificate.NotAfter) {
			t.Errorf("NotAfter %s is after the CA's %s", leaf.NotAfter, m.certificate.NotAfter)
		}
	})
}

func TestTLSCertificateIsRenewed(t *testing.T) {
	clock := newClock()
	a := open(t, fake.NewSimpleClientset(), clock)
	certificate := func() *tls.Certificate {
		got, pool, err := a.TLS()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := got.Leaf.Verify(x509.VerifyOptions{
			Roots: pool, CurrentTime: clock.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := certificate()
	hub, err := identity.HubOf(first.Leaf)
	if err != nil || hub.ID != a.HubID() {
		t.Errorf("HubOf: %v, %v, want %s", hub, err, a.HubID())
	}
	if sum := sha256.Sum256(first.Certificate[len(first.Certificate)-1]); hex.EncodeToString(sum[:]) != a.Fingerprint() {
		t.Error("the chain does not end with the CA: an agent that joins could not compare its fingerprint")
	}
	clock.at = clock.at.Add(DefaultCertificateLife / 2)
	if certificate() != first {
		t.Error("the certificate was renewed at half of its life")
	}
	clock.at = first.Leaf.NotBefore.Add(first.Leaf.NotAfter.Sub(first.Leaf.NotBefore) * 2 / 3)
	if certificate() == first {
		t.Error("the certificate was not renewed before two thirds of its life")
	}
}

func TestServingCertificateIsRenewed(t *testing.T) {
	clock := newClock()
	a := open(t, fake.NewSimpleClientset(), clock)
	serving, err := a.Serving(Names{DNS: []string{"spokelet-hub.spokelet-system.svc"}, IPs: []net.IP{net.IPv4(10, 0, 0, 7)}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := serving.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"spokelet-hub.spokelet-system.svc", "10.0.0.7"} {
		if err := first.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := identity.HubOf(first.Leaf); err == nil {
		t.Error("the certificate of a server passes for the hub's own identity")
	}
	chain, key, err := serving.PEM()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		t.Error(err)
	}
	clock.at = clock.at.Add(DefaultCertificateLife)
	if second, err := serving.Certificate(); err != nil || second == first {
		t.Errorf("the certificate was not renewed at its end: %v", err)
	}
	if _, err := a.Serving(Names{}); err == nil {
		t.Error("a server without a name got a certificate")
	}
}
