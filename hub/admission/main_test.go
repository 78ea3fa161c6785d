// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hub/requester"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// rights is Access: who may execute as whom, and what was asked.
type rights struct {
	allowed bool
	err     error
	asked   []authorizationv1.SubjectAccessReviewSpec
}

func (r *rights) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	r.asked = append(r.asked, review.Spec)
	if r.err != nil {
		return nil, r.err
	}
	answer := review.DeepCopy()
	answer.Status.Allowed = r.allowed
	return answer, nil
}

// owned is Clusters with clusters of ours alone.
func owned(context.Context, string) (bool, error) { return false, nil }

// newCertificate returns one for an address, and the pool that trusts it.
func newCertificate(t *testing.T, ip net.IP) (certificate *tls.Certificate, bundle []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, IPAddresses: []net.IP{ip},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// start runs a server on an address. It is stopped with the test, or before.
func start(t *testing.T, address string, certificate *tls.Certificate, config Config) (at net.Addr, stop func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	config.Listener = listener
	if config.Registration == nil {
		config.Registration = &requester.Registration{}
	}
	config.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("server ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return listener.Addr(), stop
}
