// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/tunnel/identity"
)

func TestOpenLoadsOrCreatesSecret(t *testing.T) {
	t.Run("Replicas that start together agree on one key", func(t *testing.T) {
		clients := fake.NewSimpleClientset()
		var group sync.WaitGroup
		keys := make([]string, 6)
		for n := range keys {
			group.Go(func() {
				i, err := Open(t.Context(), config(clients))
				if err != nil {
					t.Error(err)
					return
				}
				keys[n] = string(i.pem)
			})
		}
		group.Wait()
		for _, key := range keys {
			if key == "" || key != keys[0] {
				t.Fatal("replicas have different keys")
			}
		}
	})

	t.Run("An identity survives a restart", func(t *testing.T) {
		clients := fake.NewSimpleClientset()
		before := joined(t, clients, &hub{ca: newCA(t), id: idOne})
		want, _, _, err := before.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		got, authorities, hub, err := open(t, clients).Certificate()
		if err != nil || !got.Leaf.Equal(want.Leaf) || authorities == nil || hub != hubID {
			t.Errorf("certificate %v, hub %q, %v", got, hub, err)
		}
	})

	t.Run("A secret of another cluster is not taken", func(t *testing.T) {
		clients := fake.NewSimpleClientset()
		joined(t, clients, &hub{ca: newCA(t), id: idOne})
		other := config(clients)
		other.Cluster = "store2"
		if _, err := Open(t.Context(), other); !errors.Is(err, ErrAnswer) || !strings.Contains(err.Error(), "delete the secret") {
			t.Errorf("Open: %v", err)
		}
	})

	t.Run("A secret without a key is refused, and left as it is", func(t *testing.T) {
		clients := fake.NewSimpleClientset()
		open(t, clients)
		secret := stored(t, clients)
		secret.Data = map[string][]byte{"x": []byte("y")}
		if _, err := clients.CoreV1().Secrets("spokelet-agent").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), config(clients)); !errors.Is(err, ErrSecret) {
			t.Errorf("Open: %v, want %v", err, ErrSecret)
		}
	})

	t.Run("Without a certificate there is none", func(t *testing.T) {
		if _, _, _, err := open(t, fake.NewSimpleClientset()).Certificate(); !errors.Is(err, ErrNotJoined) {
			t.Errorf("Certificate: %v, want %v", err, ErrNotJoined)
		}
	})
}

func TestRenewed(t *testing.T) {
	clients := fake.NewSimpleClientset()
	h := &hub{ca: newCA(t), id: idOne}
	i := joined(t, clients, h)
	later := time.Now().Add(60 * 24 * time.Hour)
	key := i.key.Public()

	t.Run("The request is for the whole identity", func(t *testing.T) {
		csr := newRequest(t, i)
		if err := identity.CheckRequest(csr, store(idOne)); err != nil || len(csr.URIs) != 1 {
			t.Errorf("%v, URIs %v", err, csr.URIs)
		}
	})

	other := newCA(t)
	stranger := open(t, fake.NewSimpleClientset()).key.Public()
	for name, answer := range map[string]struct{ chain, bundle []byte }{
		"for another key":                      {h.ca.sign(store(idOne), stranger, later), nil},
		"for another cluster id":               {h.ca.sign(store(idTwo), key, later), nil},
		"for another name":                     {h.ca.sign(identity.Cluster{HubID: hubID, Name: "store1xyz", ID: idOne}, key, later), nil},
		"from another authority":               {other.sign(store(idOne), key, later), nil},
		"that is no PEM":                       {[]byte("garbage"), nil},
		"with trailing garbage":                {append(h.ca.sign(store(idOne), key, later), "garbage"...), nil},
		"with a bundle that is no authority's": {h.ca.sign(store(idOne), key, later), h.ca.sign(store(idOne), key, later)},
	} {
		t.Run("A certificate "+name+" changes nothing", func(t *testing.T) {
			before, _ := i.get()
			if err := i.Renewed(t.Context(), answer.chain, answer.bundle); !errors.Is(err, ErrAnswer) {
				t.Errorf("Renewed: %v, want %v", err, ErrAnswer)
			}
			if after, _ := i.get(); after != before {
				t.Error("the credentials changed")
			}
		})
	}

	t.Run("A bundle alone is taken, with the certificate kept", func(t *testing.T) {
		before, _, _, _ := i.Certificate()
		bundle := append(h.ca.pem(), other.pem()...)
		if err := i.Renewed(t.Context(), nil, bundle); err != nil {
			t.Fatal(err)
		}
		after, _, _, _ := i.Certificate()
		if !after.Leaf.Equal(before.Leaf) || !bytes.Equal(stored(t, clients).Data[keyBundle], bundle) {
			t.Error("the bundle was not kept, or the certificate was not")
		}
	})

	t.Run("A new certificate is in use and in the secret", func(t *testing.T) {
		chain := h.ca.sign(store(idOne), key, later)
		if err := i.Renewed(t.Context(), chain, h.ca.pem()); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, clients); !bytes.Equal(got.Data[keyCertificate], chain) || got.Data[keyTokenHash] == nil {
			t.Errorf("the secret holds something else")
		}
	})

	t.Run("A late replica does not write an older certificate over a newer one", func(t *testing.T) {
		want := string(stored(t, clients).Data[keyCertificate])
		late := open(t, clients)
		if err := late.Renewed(t.Context(), h.ca.sign(store(idOne), key, time.Now()), nil); err != nil {
			t.Fatal(err)
		}
		if got := string(stored(t, clients).Data[keyCertificate]); got != want {
			t.Error("the older certificate is in the secret")
		}
	})

	t.Run("A failed write leaves the new certificate in use and is made up for", func(t *testing.T) {
		broken := fake.NewSimpleClientset(stored(t, clients))
		i := open(t, broken)
		fails := true
		broken.PrependReactor("update", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
			return fails, nil, errors.New("boom")
		})
		chain := h.ca.sign(store(idOne), key, later.Add(time.Hour))
		if err := i.Renewed(t.Context(), chain, nil); err == nil {
			t.Fatal("the failure was not told")
		}
		if current, _ := i.get(); !bytes.Equal(current.chainPEM, chain) {
			t.Error("the new certificate is not in use")
		}
		fails = false
		if err := i.save(t.Context()); err != nil || !bytes.Equal(stored(t, broken).Data[keyCertificate], chain) {
			t.Errorf("save: %v", err)
		}
	})
}

// newRequest is a new request, with a key of its own.
func newRequest(t *testing.T, i *Identity) *x509.CertificateRequest {
	t.Helper()
	der, err := i.NewRequest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func TestEachRenewalHasAKeyOfItsOwn(t *testing.T) {
	clients := fake.NewSimpleClientset()
	h := &hub{ca: newCA(t), id: idOne}
	i := joined(t, clients, h)
	replica := open(t, clients)
	before := stored(t, clients)
	usesKey := func(reason string, who *Identity, want crypto.PublicKey) {
		t.Helper()
		certificate, _, _, err := who.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []crypto.PublicKey{certificate.Leaf.PublicKey, certificate.PrivateKey.(crypto.Signer).Public()} {
			if !got.(*ecdsa.PublicKey).Equal(want) {
				t.Errorf("%s: the key in use is another one", reason)
			}
		}
	}
	first := i.key.Public()
	lost, asked := newRequest(t, i).PublicKey, newRequest(t, i).PublicKey
	for reason, key := range map[string]crypto.PublicKey{"the key in use": first, "the key of another request": lost} {
		if asked.(*ecdsa.PublicKey).Equal(key) {
			t.Errorf("%s was asked for again", reason)
		}
	}
	usesKey("before the answer", i, first)
	usesKey("a crash before the answer", open(t, clients), first)
	later := time.Now().Add(60 * 24 * time.Hour)
	if err := i.Renewed(t.Context(), h.ca.sign(store(idOne), lost, later), nil); !errors.Is(err, ErrAnswer) {
		t.Errorf("a certificate of a key that was given up: %v, want %v", err, ErrAnswer)
	}
	if err := i.Renewed(t.Context(), h.ca.sign(store(idOne), asked, later), nil); err != nil {
		t.Fatal(err)
	}
	usesKey("after the answer", i, asked)
	after := stored(t, clients)
	if bytes.Equal(before.Data[keyPrivate], after.Data[keyPrivate]) || bytes.Equal(before.Data[keyCertificate], after.Data[keyCertificate]) {
		t.Error("key and certificate were not replaced together")
	}
	usesKey("a crash after the answer", open(t, clients), asked)
	replica.observe(after)
	usesKey("another replica", replica, asked)
	replica.observe(before)
	usesKey("another replica, told late of what was before", replica, asked)
}

// Of two replicas that renew at once each writes a key with its own certificate.
func TestReplicasThatRenewAtOnceAgree(t *testing.T) {
	clients := fake.NewSimpleClientset()
	h := &hub{ca: newCA(t), id: idOne}
	one := joined(t, clients, h)
	two := open(t, clients)
	keys := map[*Identity]crypto.PublicKey{one: newRequest(t, one).PublicKey, two: newRequest(t, two).PublicKey}
	for n, i := range []*Identity{one, two} {
		if err := i.Renewed(t.Context(), h.ca.sign(store(idOne), keys[i], time.Now().Add(time.Duration(60+n)*24*time.Hour)), nil); err != nil {
			t.Fatal(err)
		}
	}
	secret := stored(t, clients)
	one.observe(secret)
	for _, i := range []*Identity{one, two, open(t, clients)} {
		certificate, _, _, err := i.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		if !certificate.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(keys[two]) {
			t.Error("a replica uses another key than that of the last certificate")
		}
	}
}

// A replica that joins anew has bound its token to the key in the Secret.
func TestAKeyWithoutACertificateIsNotReplaced(t *testing.T) {
	clients := fake.NewSimpleClientset()
	h := &hub{ca: newCA(t), id: idOne}
	i := joined(t, clients, h)
	asked := newRequest(t, i).PublicKey
	secret := stored(t, clients)
	pair, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{keyPrivate: pair.pem}
	if _, err := clients.CoreV1().Secrets("spokelet-agent").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := i.Renewed(t.Context(), h.ca.sign(store(idOne), asked, time.Now().Add(time.Hour)), nil); !errors.Is(err, ErrSecret) {
		t.Errorf("Renewed: %v, want %v", err, ErrSecret)
	}
	if got := stored(t, clients); !bytes.Equal(got.Data[keyPrivate], pair.pem) {
		t.Error("the key of a replica that joins was overwritten")
	}
}

func TestStartWatchesSecret(t *testing.T) {
	clients := fake.NewSimpleClientset()
	follower := open(t, clients)
	stream := watch.NewFake()
	clients.PrependWatchReactor("secrets", k8stesting.DefaultWatchReactor(stream, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- follower.Start(ctx) }()
	before := stored(t, clients)
	before.ResourceVersion = "1"
	stream.Add(before)
	bookmark := before.DeepCopy()
	bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	stream.Action(watch.Bookmark, bookmark)

	_, changed := follower.get()
	joined(t, clients, &hub{ca: newCA(t), id: idOne})
	after := stored(t, clients)
	after.ResourceVersion = "2"
	stream.Modify(after)
	<-changed
	if _, _, hub, err := follower.Certificate(); err != nil || hub != hubID {
		t.Errorf("the certificate that another replica was given: hub %q, %v", hub, err)
	}
	// What the watch tells late does not take the certificate away.
	follower.observe(before)
	if _, _, _, err := follower.Certificate(); err != nil {
		t.Error(err)
	}
	cancel()
	stream.Stop() // as a client does at the end of ctx
	if err := <-done; err != nil {
		t.Error(err)
	}
}
