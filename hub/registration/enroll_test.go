// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

func (h *harness) bound(cluster string) bool {
	h.t.Helper()
	secret := &corev1.Secret{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: token.SecretName(cluster)}, secret); err != nil {
		h.t.Fatal(err)
	}
	record, err := token.Decode(secret.Data)
	if err != nil {
		h.t.Fatal(err)
	}
	return record.BoundKey != nil
}

// forgeRecord does what somebody who may write Secrets in the cluster's namespace
// can: it stores a record there, under any name that the hub might look for.
func (h *harness) forgeRecord() token.Token {
	h.t.Helper()
	forged := token.New()
	record := token.Record{Hash: forged.Hash(), Expires: h.now.Add(time.Hour)}
	for _, name := range []string{token.SecretName(store1), "spokelet-join"} {
		if err := h.client.Create(h.t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: store1, Name: name}, Type: token.SecretType, Data: record.Encode(),
		}); err != nil {
			h.t.Fatal(err)
		}
	}
	return forged
}

func TestEnroll(t *testing.T) {
	t.Run("A valid token gives a certificate of exactly the cluster", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		response, err := h.Enroller().Enroll(t.Context(), request(t, newKey(t), store1, h.issueToken(store1)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := identity.ClusterOf(leafOf(t, response.GetCertificateChain()))
		if want := h.identity(store1, store1ID); err != nil || got != want {
			t.Errorf("certificate of %v, %v, want %v", got, err, want)
		}
		if response.GetHubId() != h.authority.HubID() || !bytes.Equal(response.GetTrustBundle(), h.authority.Bundle()) {
			t.Error("the answer names another hub or bundle than the authority's")
		}
		if got := h.get(store1).Annotations[AnnotationKubeSystemUID]; got != store1NS {
			t.Errorf("pinned kube-system UID %q, want %q", got, store1NS)
		}
	})

	t.Run("The same key may ask again, until the token expires", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		again := request(t, newKey(t), store1, h.issueToken(store1))
		for range 3 {
			if _, err := h.Enroller().Enroll(t.Context(), again); err != nil {
				t.Fatal(err)
			}
		}
		h.now = h.now.Add(time.Hour)
		if _, err := h.Enroller().Enroll(t.Context(), again); status.Code(err) != codes.PermissionDenied {
			t.Errorf("after the token's end: %v, want %v", err, codes.PermissionDenied)
		}
	})

	t.Run("Of many keys with one token exactly one wins", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		issued := h.issueToken(store1)
		var group sync.WaitGroup
		var won atomic.Int32
		for range 8 {
			attempt := request(t, newKey(t), store1, issued)
			group.Go(func() {
				if _, err := h.Enroller().Enroll(t.Context(), attempt); err == nil {
					won.Add(1)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 {
			t.Errorf("%d keys were given a certificate, want 1", won.Load())
		}
	})
}

// TestEnrollDoesNotRevealClustersOrTokens holds the refusals that must not be told apart.
func TestEnrollDoesNotRevealClustersOrTokens(t *testing.T) {
	cases := map[string]struct {
		record *clusterv1.ManagedCluster
		spoil  func(*harness, *rpcv1.EnrollRequest)
		reason string
	}{
		"The cluster is unknown": {
			record: managedCluster(func(r *clusterv1.ManagedCluster) { r.Name = "other" }), reason: "unknown_cluster",
		},
		"The record is not ours":      {record: managedCluster(unmanaged), reason: "unknown_cluster"},
		"The record has no id yet":    {record: managedCluster(func(r *clusterv1.ManagedCluster) { r.Annotations[managedcluster.AnnotationClusterID] = "" }), reason: "unknown_cluster"},
		"The record is being deleted": {record: managedCluster(func(r *clusterv1.ManagedCluster) { r.DeletionTimestamp = new(metav1.Unix(1, 0)) }), reason: "unknown_cluster"},
		"The token is forged": {
			spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Token = token.New().Reveal() }, reason: "forged_token",
		},
		"The token is empty":     {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Token = "" }, reason: "malformed_token"},
		"The token is truncated": {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Token = r.GetToken()[:30] }, reason: "malformed_token"},
		"The token has expired":  {spoil: func(h *harness, _ *rpcv1.EnrollRequest) { h.now = h.now.Add(time.Hour) }, reason: "expired_token"},
		"The token was used by another key": {
			spoil: func(h *harness, r *rpcv1.EnrollRequest) {
				issued, _ := token.Parse(r.GetToken())
				if _, err := h.Enroller().Enroll(h.t.Context(), request(h.t, newKey(h.t), store1, issued)); err != nil {
					h.t.Fatal(err)
				}
			}, reason: "used_token",
		},
		"The cluster has no token": {
			spoil: func(h *harness, _ *rpcv1.EnrollRequest) {
				if err := h.reconciler.deleteToken(h.t.Context(), store1); err != nil {
					h.t.Fatal(err)
				}
			}, reason: "no_token",
		},
		"The record is in the cluster's namespace": {
			spoil: func(h *harness, r *rpcv1.EnrollRequest) { r.Token = h.forgeRecord().Reveal() }, reason: "forged_token",
		},
		"The only record is in the cluster's namespace": {
			spoil: func(h *harness, r *rpcv1.EnrollRequest) {
				r.Token = h.forgeRecord().Reveal()
				if err := h.reconciler.deleteToken(h.t.Context(), store1); err != nil {
					h.t.Fatal(err)
				}
			}, reason: "no_token",
		},
		"The secret is of another type": {
			spoil: func(h *harness, _ *rpcv1.EnrollRequest) {
				secret := &corev1.Secret{}
				secret.Namespace, secret.Name = hubNamespace, token.SecretName(store1)
				if err := h.client.Delete(h.t.Context(), secret); err != nil {
					h.t.Fatal(err)
				}
				if err := h.client.Create(h.t.Context(), secret); err != nil {
					h.t.Fatal(err)
				}
			}, reason: "bad_token_record",
		},
	}
	var told string
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			record := tc.record
			if record == nil {
				record = managedCluster()
			}
			h := newHarness(t, record)
			attempt := request(t, newKey(t), store1, h.issueToken(store1))
			if tc.spoil != nil {
				tc.spoil(h, attempt)
			}
			_, err := h.Enroller().Enroll(t.Context(), attempt)
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `"store1"`) {
				t.Fatalf("Enroll: %v, want %v with the name of the cluster", err, codes.PermissionDenied)
			}
			if told == "" {
				told = err.Error()
			}
			if err.Error() != told {
				t.Errorf("the refusal differs:\n%s\n%s", err, told)
			}
			if h.refused(tc.reason) != 1 {
				t.Errorf("the metric does not count reason %q", tc.reason)
			}
			if known := h.refused("unknown_cluster") == 0; known != (len(h.events.Events) == 1) {
				t.Errorf("%d events on the record", len(h.events.Events))
			}
		})
	}
}

// TestEnrollRefuses holds the refusals that say what is wrong; none of them may
// use the token up.
func TestEnrollRefuses(t *testing.T) {
	uri := func(s string) []*url.URL {
		parsed, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{parsed}
	}
	csr := func(template *x509.CertificateRequest) func(*harness, *rpcv1.EnrollRequest) {
		return func(h *harness, r *rpcv1.EnrollRequest) { r.Csr = rawCSR(h.t, template) }
	}
	named := pkix.Name{CommonName: store1}
	cases := map[string]struct {
		record *clusterv1.ManagedCluster
		spoil  func(*harness, *rpcv1.EnrollRequest)
		code   codes.Code
	}{
		"A request for another cluster":   {spoil: csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "store2"}}), code: codes.InvalidArgument},
		"A name that begins with ours":    {spoil: csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "store1xyz"}}), code: codes.InvalidArgument},
		"A name that is the head of ours": {spoil: csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "store"}}), code: codes.InvalidArgument},
		"An organization beside the name": {spoil: csr(&x509.CertificateRequest{Subject: pkix.Name{CommonName: store1, Organization: []string{"system:masters"}}}), code: codes.InvalidArgument},
		"A DNS name beside the name":      {spoil: csr(&x509.CertificateRequest{Subject: named, DNSNames: []string{"hub"}}), code: codes.InvalidArgument},
		"The URI of another cluster id":   {spoil: csr(&x509.CertificateRequest{Subject: named, URIs: uri("spiffe://" + otherID + "/cluster/store1/" + otherID)}), code: codes.InvalidArgument},
		"The URI of the hub":              {spoil: csr(&x509.CertificateRequest{Subject: named, URIs: uri("spiffe://" + otherID + "/hub")}), code: codes.InvalidArgument},
		"No request":                      {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Csr = nil }, code: codes.InvalidArgument},
		"A request that is too long":      {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Csr = make([]byte, maxRequest+1) }, code: codes.InvalidArgument},
		"A request signed by another key": {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Csr[len(r.GetCsr())-1] ^= 1 }, code: codes.InvalidArgument},
		"A token that is too long":        {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Token = strings.Repeat("a", 1000) }, code: codes.InvalidArgument},
		"A cluster name with a dot":       {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Cluster = "store1.eu" }, code: codes.InvalidArgument},
		"The name of a system namespace":  {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Cluster = "kube-system" }, code: codes.InvalidArgument},
		"The name of the hub's namespace": {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.Cluster = "spokelet-system" }, code: codes.InvalidArgument},
		"No kube-system UID":              {spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.KubeSystemUid = "" }, code: codes.InvalidArgument},
		"A kube-system UID with a line end": {
			spoil: func(_ *harness, r *rpcv1.EnrollRequest) { r.KubeSystemUid = "a\nb" }, code: codes.InvalidArgument,
		},
		"The kube-system UID of another cluster": {
			record: managedCluster(pinned),
			spoil:  func(_ *harness, r *rpcv1.EnrollRequest) { r.KubeSystemUid = otherNS }, code: codes.PermissionDenied,
		},
		"A hub that has not read its records": {
			spoil: func(h *harness, _ *rpcv1.EnrollRequest) { h.setSynced(false) }, code: codes.Unavailable,
		},
		"An API server that fails is no verdict on the token": {
			spoil: func(h *harness, _ *rpcv1.EnrollRequest) { h.failGets = errors.New("boom") }, code: codes.Unavailable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			record := tc.record
			if record == nil {
				record = managedCluster()
			}
			h := newHarness(t, record)
			attempt := request(t, newKey(t), store1, h.issueToken(store1))
			tc.spoil(h, attempt)
			if _, err := h.Enroller().Enroll(t.Context(), attempt); status.Code(err) != tc.code {
				t.Errorf("Enroll: %v, want %v", err, tc.code)
			}
			h.failGets = nil
			if h.bound(store1) {
				t.Error("the refusal used the token up")
			}
		})
	}
}

func TestEnrollLimitsAttempts(t *testing.T) {
	t.Run("An address has a burst, another address its own", func(t *testing.T) {
		h := newHarness(t)
		attempt := request(t, newKey(t), store1, token.New())
		for range h.enroller.limiter.limits.Burst {
			if _, err := h.Enroller().Enroll(from(t.Context(), "192.0.2.1"), attempt); status.Code(err) != codes.PermissionDenied {
				t.Fatalf("within the burst: %v", err)
			}
		}
		if _, err := h.Enroller().Enroll(from(t.Context(), "192.0.2.1"), attempt); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("after the burst: %v, want %v", err, codes.ResourceExhausted)
		}
		if _, err := h.Enroller().Enroll(from(t.Context(), "192.0.2.2"), attempt); status.Code(err) != codes.PermissionDenied {
			t.Errorf("another address: %v, want %v", err, codes.PermissionDenied)
		}
		h.now = h.now.Add(time.Minute)
		if _, err := h.Enroller().Enroll(from(t.Context(), "192.0.2.1"), attempt); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a minute later: %v, want %v", err, codes.PermissionDenied)
		}
	})

	t.Run("One IPv6 network is one caller", func(t *testing.T) {
		if a, b := clientAddress(from(t.Context(), "2001:db8::1")), clientAddress(from(t.Context(), "2001:db8::2:3")); a != b || a == "" {
			t.Errorf("%q and %q are counted apart", a, b)
		}
	})

	t.Run("The memory of addresses is bounded", func(t *testing.T) {
		limits := Limits{Addresses: 8}
		limits.Default()
		l := newLimiter(limits, time.Now)
		for i := range 100 {
			l.addressLimiter(string(rune('a' + i)))
		}
		if got := l.addresses.Len(); got != 8 {
			t.Errorf("%d addresses are remembered, want 8", got)
		}
	})

	t.Run("No more are worked on than there are places", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		attempt := request(t, newKey(t), store1, h.issueToken(store1))
		for range h.enroller.limiter.limits.Concurrent {
			release, err := h.enroller.limiter.acquire(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
		}
		if _, err := h.Enroller().Enroll(t.Context(), attempt); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("Enroll: %v, want %v", err, codes.ResourceExhausted)
		}
		h.seen(store1)
		if _, err := h.Enroller().Enroll(t.Context(), attempt); err != nil {
			t.Errorf("Enroll of who holds a token that the hub has seen: %v", err)
		}
	})
}
