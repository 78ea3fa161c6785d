// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc/peer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	k8sfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/hub/authority"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	hubNamespace = "spokelet-system"

	store1   = "store1"
	store1ID = "0b9cf2f5-8d0e-4b7f-8a4e-5a5c3c1d2e3f"
	otherID  = "11111111-2222-4333-8444-555555555555"
	store1NS = "77777777-2222-4333-8444-555555555555"
	otherNS  = "88888888-2222-4333-8444-555555555555"
)

// harness is a registration over an API server in memory.
type harness struct {
	*Registration
	t         testing.TB
	client    client.WithWatch
	events    *events.FakeRecorder
	authority *authority.Authority
	works     *fakeWorks
	nodes     *fakeNodes
	now       time.Time
	// began makes the clock run, from now on.
	began time.Time
	// reading runs before every read, nil does nothing.
	reading func()

	mu       sync.Mutex
	cut      []string // guarded by mu; the clusters whose sessions were cut
	marked   []string // guarded by mu; the addresses of calls whose callers hold a token
	writes   int      // guarded by mu; what was asked of the API server
	failGets error    // guarded by mu; what Secrets answer
}

type fakeWorks struct {
	left     []string
	released []string
	err      error
}

func (f *fakeWorks) Release(_ context.Context, cluster string) ([]string, error) {
	f.released = append(f.released, cluster)
	left := f.left
	f.left = nil
	return left, f.err
}

type fakeNodes struct{ removed []string }

func (f *fakeNodes) Remove(_ context.Context, cluster string) error {
	f.removed = append(f.removed, cluster)
	return nil
}

func newHarness(t testing.TB, objects ...client.Object) *harness {
	t.Helper()
	h := &harness{t: t, events: events.NewFakeRecorder(1000), works: &fakeWorks{}, nodes: &fakeNodes{},
		now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	h.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).
		WithStatusSubresource(&clusterv1.ManagedCluster{}).WithObjects(objects...).Build(), h.interceptors())
	var err error
	h.authority, err = authority.Open(t.Context(), authority.Config{
		Secrets: k8sfake.NewSimpleClientset().CoreV1(), Namespace: hubNamespace, Logger: logr.Discard(), Now: h.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Registration, err = New(Config{
		Client: h.client, Live: h.client, Events: h.events, Authority: h.authority, Works: h.works, Nodes: h.nodes,
		Disconnect: h.disconnect, MarkTokenHolder: h.markTokenHolder, HubNamespace: hubNamespace, Registerer: prometheus.NewRegistry(),
		Logger: logr.Discard(), Now: h.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.setSynced(true)
	return h
}

func (h *harness) clock() time.Time {
	if h.began.IsZero() {
		return h.now
	}
	return h.now.Add(time.Since(h.began))
}

func (h *harness) setSynced(synced bool) {
	f := func() bool { return synced }
	h.gate.synced.Store(&f)
}

func (h *harness) disconnect(cluster string, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = append(h.cut, cluster)
}

func (h *harness) markTokenHolder(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marked = append(h.marked, clientAddress(ctx))
}

// markedHolders returns the addresses of calls whose callers hold a token, since the last.
func (h *harness) markedHolders() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.marked = nil }()
	return h.marked
}

func (h *harness) wasCut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.cut = nil }()
	return len(h.cut) > 0
}

// wrote returns how many writes there were since the last call.
func (h *harness) wrote() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.writes = 0 }()
	return h.writes
}

func (h *harness) count() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
}

func (h *harness) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if h.reading != nil {
				h.reading()
			}
			h.mu.Lock()
			err := h.failGets
			h.mu.Unlock()
			if _, ok := obj.(*corev1.Secret); ok && err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			h.count()
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			h.count()
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			h.count()
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}
}

// refused returns how many enrolments were refused for a reason.
func (h *harness) refused(reason string) int {
	return int(testutil.ToFloat64(h.enroller.counters.join.WithLabelValues(reason)))
}

func (h *harness) get(name string) *clusterv1.ManagedCluster {
	h.t.Helper()
	record := &clusterv1.ManagedCluster{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: name}, record); err != nil {
		h.t.Fatal(err)
	}
	return record
}

// change updates a record and lets the gate see it, as the informer would.
func (h *harness) change(name string, change func(*clusterv1.ManagedCluster)) {
	h.t.Helper()
	before := h.get(name)
	record := before.DeepCopy()
	change(record)
	if err := h.client.Update(h.t.Context(), record); err != nil {
		h.t.Fatal(err)
	}
	h.gate.eventHandler().OnUpdate(before, record)
}

func (h *harness) reconcileOnce(name string) reconcile.Result {
	h.t.Helper()
	result, err := h.reconciler.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil {
		h.t.Fatal(err)
	}
	return result
}

// issueToken stores a token that is good for an hour and returns it.
func (h *harness) issueToken(cluster string) token.Token {
	h.t.Helper()
	issued := token.New()
	record := token.Record{Hash: issued.Hash(), Expires: h.now.Add(time.Hour)}
	if err := h.client.Create(h.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: token.SecretName(cluster)}, Type: token.SecretType, Data: record.Encode(),
	}); err != nil {
		h.t.Fatal(err)
	}
	return issued
}

// hold issues a token that the hub has seen.
func (h *harness) hold(cluster string) token.Token {
	h.t.Helper()
	issued := h.issueToken(cluster)
	h.seen(cluster)
	return issued
}

// seen lets the hub see the record of a token, as the informer would.
func (h *harness) seen(cluster string) {
	h.t.Helper()
	secret := &corev1.Secret{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: token.SecretName(cluster)}, secret); err != nil {
		h.t.Fatal(err)
	}
	h.enroller.limiter.tokenLimiter.eventHandler().OnAdd(secret, false)
}

func (h *harness) identity(cluster, id string) identity.Cluster {
	return identity.Cluster{HubID: h.authority.HubID(), Name: cluster, ID: id}
}

// managedCluster is an accepted record as the reconciler leaves it.
func managedCluster(changes ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	record := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: store1, UID: "uid-1", Finalizers: []string{Finalizer},
			Annotations: map[string]string{managedcluster.AnnotationManaged: "true", managedcluster.AnnotationClusterID: store1ID},
		},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, change := range changes {
		change(record)
	}
	return record
}

func unaccepted(record *clusterv1.ManagedCluster) { record.Spec.HubAcceptsClient = false }

func unmanaged(record *clusterv1.ManagedCluster) {
	delete(record.Annotations, managedcluster.AnnotationManaged)
}

func pinned(record *clusterv1.ManagedCluster) { record.Annotations[AnnotationKubeSystemUID] = store1NS }

func newKey(tb testing.TB) crypto.Signer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func request(tb testing.TB, key crypto.Signer, name string, joinToken token.Token) *rpcv1.EnrollRequest {
	tb.Helper()
	csr, err := identity.NewRequest(key, identity.Cluster{Name: name})
	if err != nil {
		tb.Fatal(err)
	}
	return &rpcv1.EnrollRequest{Cluster: name, Token: joinToken.Reveal(), Csr: csr, KubeSystemUid: store1NS}
}

func rawCSR(t testing.TB, template *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return der
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

func from(ctx context.Context, address string) context.Context {
	return peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 1234}})
}
