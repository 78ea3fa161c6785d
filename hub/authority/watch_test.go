// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// rotated is the data of a hub that moves from one CA to another.
func rotated(t *testing.T, clock *clock, from map[string][]byte) map[string][]byte {
	t.Helper()
	next := material1(t, clock)
	m, err := parseMaterial(from, clock.now())
	if err != nil {
		t.Fatal(err)
	}
	// A CA that a user brings names no trust domain.
	certificate, key := userCA(t, clock)
	maps.Copy(next, map[string][]byte{
		KeyHubID: []byte(m.hubID), KeyCertificate: certificate, KeyPrivateKey: key, KeyBundle: from[KeyCertificate],
	})
	return next
}

func TestRotationKeepsOldAndNewTrusted(t *testing.T) {
	clock := newClock()
	old := material1(t, clock)
	a := open(t, fake.NewSimpleClientset(secretOf(old)), clock)
	cluster := identity.Cluster{HubID: a.HubID(), Name: "store1", ID: clusterID}
	chain, _, err := a.IssueCluster(cluster, newRequest(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	before, fingerprintBefore := leafOf(t, chain), a.Fingerprint()

	if err := a.replace(rotated(t, clock, old)); err != nil {
		t.Fatal(err)
	}
	chain, bundle, err := a.IssueCluster(cluster, newRequest(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	if a.Fingerprint() == fingerprintBefore {
		t.Error("the fingerprint is still that of the old CA")
	}
	hub, pool, err := a.TLS()
	if err != nil {
		t.Fatal(err)
	}
	agents := x509.NewCertPool()
	agents.AppendCertsFromPEM(bundle)
	for name, check := range map[string]struct {
		leaf *x509.Certificate
		pool *x509.CertPool
	}{
		"an agent of before the rotation, at the hub": {before, pool},
		"an agent of after the rotation, at the hub":  {leafOf(t, chain), pool},
		"the hub, at an agent with the new bundle":    {hub.Leaf, agents},
	} {
		options := x509.VerifyOptions{Roots: check.pool, CurrentTime: clock.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
		if _, err := check.leaf.Verify(options); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestServingCertificateFollowsRotation(t *testing.T) {
	clock := newClock()
	old := material1(t, clock)
	a := open(t, fake.NewSimpleClientset(secretOf(old)), clock)
	serving, err := a.Serving(Names{IPs: []net.IP{net.IPv4(10, 0, 0, 7)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.replace(rotated(t, clock, old)); err != nil {
		t.Fatal(err)
	}
	shown, err := serving.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := shown.Leaf.CheckSignatureFrom(a.getMaterial().certificate); err != nil {
		t.Errorf("a server still shows what the old authority signed: %v", err)
	}
}

func TestReplaceKeepsMaterialOnInvalidSecret(t *testing.T) {
	clock := newClock()
	a := open(t, fake.NewSimpleClientset(), clock)
	before := a.Fingerprint()
	if err := a.replace(material1(t, clock)); !errors.Is(err, ErrMismatch) {
		t.Errorf("the CA of another hub: %v, want %v", err, ErrMismatch)
	}
	if err := a.replace(map[string][]byte{}); !errors.Is(err, ErrIncomplete) {
		t.Errorf("an empty secret: %v, want %v", err, ErrIncomplete)
	}
	if a.Fingerprint() != before {
		t.Error("an unusable secret replaced the CA")
	}
}

func TestStartWatchesSecret(t *testing.T) {
	clock := newClock()
	old := material1(t, clock)
	clients := fake.NewSimpleClientset(secretOf(old))
	a := open(t, clients, clock)
	changed := make(chan struct{}, 1)
	a.OnChange(func() { changed <- struct{}{} })
	stream := watch.NewFake()
	clients.PrependWatchReactor("secrets", k8stesting.DefaultWatchReactor(stream, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Start(ctx) }()

	// A streamed list (KEP-3157): what is there, a bookmark, what happens.
	present := secretOf(old)
	present.ResourceVersion = "1"
	stream.Add(present)
	bookmark := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	stream.Action(watch.Bookmark, bookmark)
	next := secretOf(rotated(t, clock, old))
	next.ResourceVersion = "2"
	stream.Modify(next)
	<-changed
	cancel()
	stream.Stop() // as a client does at the end of ctx
	if err := <-done; err != nil {
		t.Error(err)
	}
}
