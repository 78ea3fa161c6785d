// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/tunnel/identity"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	hubID  = "6ff1b52e-0c2c-4d6a-9d5b-2f2f0f3a9a11"
	idOne  = "0b9cf2f5-8d0e-4b7f-8a4e-5a5c3c1d2e3f"
	idTwo  = "11111111-2222-4333-8444-555555555555"
	life   = 90 * 24 * time.Hour
	store1 = "store1"
)

func store(id string) identity.Cluster { return identity.Cluster{HubID: hubID, Name: store1, ID: id} }

// ca signs as the hub does.
type ca struct {
	t           testing.TB
	key         crypto.Signer
	certificate *x509.Certificate
}

func newCA(t testing.TB) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{t: t, key: key, certificate: certificate}
}

func (c *ca) pem() []byte { return toPEM(c.certificate.Raw) }

func (c *ca) fingerprint() string {
	sum := sha256.Sum256(c.certificate.Raw)
	return hex.EncodeToString(sum[:])
}

func (c *ca) sign(cluster identity.Cluster, key crypto.PublicKey, now time.Time) []byte {
	c.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: cluster.Name}, URIs: []*url.URL{cluster.URI()},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, c.certificate, key, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	return toPEM(der)
}

func toPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// hub answers Enroll in memory. It is its own connection.
type hub struct {
	ca *ca
	// skew is how far the hub's clock is ahead of the agent's.
	skew time.Duration
	id   string
	// answer, when set, spoils or replaces an answer.
	answer func(*rpcv1.EnrollResponse) error

	mu    sync.Mutex
	calls []*rpcv1.EnrollRequest // guarded by mu
}

func (h *hub) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	request, ok := args.(*rpcv1.EnrollRequest)
	if !ok {
		return fmt.Errorf("unexpected %T", args)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, request)
	csr, err := x509.ParseCertificateRequest(request.GetCsr())
	if err != nil {
		return err
	}
	if err := identity.CheckRequest(csr, store(h.id)); err != nil {
		return err
	}
	response := &rpcv1.EnrollResponse{
		CertificateChain: h.ca.sign(store(h.id), csr.PublicKey, time.Now().Add(h.skew)), TrustBundle: h.ca.pem(), HubId: hubID,
	}
	if h.answer != nil {
		if err := h.answer(response); err != nil {
			return err
		}
	}
	into, ok := reply.(proto.Message)
	if !ok {
		return fmt.Errorf("unexpected %T", reply)
	}
	proto.Merge(into, response)
	return nil
}

func (*hub) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams here")
}

func (*hub) Close() error { return nil }

func (h *hub) called() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// journal collects log lines.
type journal struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (j *journal) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lines = append(j.lines, args)
	}, funcr.Options{})
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string{}, j.lines...)
}

func config(clients *fake.Clientset) Config {
	return Config{Secrets: clients.CoreV1(), Namespace: "spokelet-agent", Cluster: store1, Logger: logr.Discard()}
}

func open(t *testing.T, clients *fake.Clientset) *Identity {
	t.Helper()
	i, err := Open(t.Context(), config(clients))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func joinRequest(h *hub, joinToken string) Request {
	return Request{
		Dial:          func(context.Context) (Conn, error) { return h, nil },
		Token:         func() (string, error) { return joinToken, nil },
		CAFingerprint: h.ca.fingerprint(), KubeSystemUID: "uid", Logger: logr.Discard(),
	}
}

func joined(t *testing.T, clients *fake.Clientset, h *hub) *Identity {
	t.Helper()
	i := open(t, clients)
	if err := i.Join(t.Context(), joinRequest(h, "token-1")); err != nil {
		t.Fatal(err)
	}
	return i
}

func stored(t *testing.T, clients *fake.Clientset) *corev1.Secret {
	t.Helper()
	secret, err := clients.CoreV1().Secrets("spokelet-agent").Get(t.Context(), DefaultSecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}
