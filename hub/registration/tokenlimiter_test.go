// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// stores are accepted records.
func stores(n int) (objects []client.Object) {
	for i := range n {
		objects = append(objects, managedCluster(func(r *clusterv1.ManagedCluster) {
			r.Name = fmt.Sprintf("store-%d", i)
			r.Annotations[managedcluster.AnnotationClusterID] = identity.NewID()
		}))
	}
	return objects
}

// persist enrols as an agent does: again and again, with pauses that grow to a minute.
func (h *harness) persist(ctx context.Context, request *rpcv1.EnrollRequest) {
	for ceiling := time.Second; ctx.Err() == nil; ceiling = min(2*ceiling, time.Minute) {
		if _, err := h.Enroller().Enroll(ctx, request); err == nil {
			return
		}
		time.Sleep(rand.N(ceiling))
	}
}

// guess tries tokens for clusters that have one, a hundred times a second, and returns
// how often somebody looked whether it fits.
func (h *harness) guess(ctx context.Context, guesses []*rpcv1.EnrollRequest) (looked int) {
	for i := 0; ctx.Err() == nil; i++ {
		if _, err := h.Enroller().Enroll(ctx, guesses[i%len(guesses)]); status.Code(err) != codes.ResourceExhausted {
			looked++
		}
		time.Sleep(10 * time.Millisecond)
	}
	return looked
}

// TestEnrollAllowsThousandClustersBehindOneAddress within two minutes of a power cut's end, with
// somebody beside them who guesses.
func TestEnrollAllowsThousandClustersBehindOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, within = 1000, 2 * time.Minute
		h := newHarness(t, stores(n)...)
		requests := make([]*rpcv1.EnrollRequest, n)
		for i := range requests {
			name := fmt.Sprintf("store-%d", i)
			requests[i] = request(t, newKey(t), name, h.hold(name))
		}
		h.began, h.reading = time.Now(), func() { time.Sleep(10 * time.Millisecond) }
		ctx, cancel := context.WithTimeout(from(t.Context(), "192.0.2.1"), within)
		defer cancel()
		var agents sync.WaitGroup
		var enrolled atomic.Int32
		for _, r := range requests {
			agents.Go(func() {
				h.persist(ctx, r)
				if ctx.Err() == nil {
					enrolled.Add(1)
				}
			})
		}
		guesses := make([]*rpcv1.EnrollRequest, 8)
		for i := range guesses {
			guesses[i] = request(t, newKey(t), fmt.Sprintf("store-%d", i), token.New())
		}
		looked := h.guess(ctx, guesses)
		agents.Wait()
		if got := enrolled.Load(); got != n {
			t.Errorf("%d of %d stores are enrolled within %s", got, n, within)
		}
		limits := h.enroller.limiter.limits
		if most := limits.Burst + int(within.Minutes())*limits.AttemptsPerMinute; looked > most || looked < most/2 {
			t.Errorf("%d guesses were looked at, want about %d: one a second", looked, most)
		}
	})
}

func TestEnrollLimitsAttemptsPerToken(t *testing.T) {
	h := newHarness(t, stores(2)...)
	attempt := func(cluster string, joinToken token.Token, address string) codes.Code {
		r := request(t, newKey(t), cluster, joinToken)
		r.Csr = nil // malformed, so that nothing is looked up
		_, err := h.Enroller().Enroll(from(t.Context(), address), r)
		return status.Code(err)
	}
	first, second := h.hold("store-0"), h.hold("store-1")
	limits := h.enroller.limiter.limits
	for i := range limits.TokenBurst + limits.Burst {
		if got := attempt("store-0", first, "192.0.2.1"); got != codes.InvalidArgument {
			t.Fatalf("attempt %d: %v", i, got)
		}
	}
	if got := attempt("store-0", first, "192.0.2.1"); got != codes.ResourceExhausted {
		t.Errorf("after those of the token and those of the address: %v", got)
	}
	if got := attempt("store-1", second, "192.0.2.1"); got != codes.InvalidArgument {
		t.Errorf("another token at the same address: %v", got)
	}
	if got := attempt("store-0", second, "192.0.2.1"); got != codes.ResourceExhausted {
		t.Errorf("the token of another cluster: %v", got)
	}
	if got := attempt("store-0", first, "192.0.2.2"); got != codes.InvalidArgument {
		t.Errorf("the token at another address: %v", got)
	}
	h.now = h.now.Add(time.Minute / time.Duration(limits.TokenAttemptsPerMinute))
	if got := attempt("store-0", first, "192.0.2.1"); got != codes.InvalidArgument {
		t.Errorf("a while later: %v", got)
	}
}

// TestEnrollMarksTokenHolders: the connection of one that does not gives way to others.
func TestEnrollMarksTokenHolders(t *testing.T) {
	h := newHarness(t, stores(2)...)
	first, second := h.hold("store-0"), h.hold("store-1")
	for name, tc := range map[string]struct {
		reason string
		token  token.Token
		want   []string
	}{
		"the token of the cluster": {reason: "it holds what an administrator gave it", token: first, want: []string{"192.0.2.1"}},
		"a guess":                  {reason: "anybody can make one", token: token.New()},
		"the token of another":     {reason: "it was not given for this cluster", token: second},
	} {
		_, _ = h.Enroller().Enroll(from(t.Context(), "192.0.2.1"), request(t, newKey(t), "store-0", tc.token)) // whatever comes of it
		if diff := cmp.Diff(tc.want, h.markedHolders()); diff != "" {
			t.Errorf("%s: %s; marked (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestTokenLimiterFollowsSecrets(t *testing.T) {
	issued, now := token.New(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	key := token.Hash{1}
	secret := func(change ...func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: token.SecretName(store1)}, Type: token.SecretType,
			Data: token.Record{Hash: issued.Hash(), Expires: now.Add(time.Hour)}.Encode(),
		}
		for _, c := range change {
			c(s)
		}
		return s
	}
	with := func(r token.Record) func(*corev1.Secret) { return func(s *corev1.Secret) { s.Data = r.Encode() } }
	cases := map[string]struct {
		reason string
		follow func(cache.ResourceEventHandler)
		want   bool
	}{
		"no record": {reason: "nobody holds one", follow: func(cache.ResourceEventHandler) {}},
		"a record":  {reason: "who has its token holds it", follow: func(h cache.ResourceEventHandler) { h.OnAdd(secret(), false) }, want: true},
		"of another kind": {reason: "it is no join token", follow: func(h cache.ResourceEventHandler) {
			h.OnAdd(secret(func(s *corev1.Secret) { s.Type = "Opaque" }), false)
		}},
		"that is unreadable": {reason: "doubt is a refusal", follow: func(h cache.ResourceEventHandler) { h.OnAdd(secret(func(s *corev1.Secret) { s.Data = nil }), false) }},
		"of a cluster with a longer name": {
			reason: "it is another's", follow: func(h cache.ResourceEventHandler) { h.OnAdd(secret(func(s *corev1.Secret) { s.Name += "0" }), false) },
		},
		"that has expired": {
			reason: "so has the token", follow: func(h cache.ResourceEventHandler) {
				h.OnAdd(secret(with(token.Record{Hash: issued.Hash(), Expires: now})), false)
			},
		},
		"that was used": {
			reason: "its key may ask again", want: true, follow: func(h cache.ResourceEventHandler) {
				h.OnUpdate(secret(), secret(with(token.Record{Hash: issued.Hash(), Expires: now.Add(time.Hour), BoundKey: &key})))
			},
		},
		"that was replaced": {
			reason: "the token before is worthless", follow: func(h cache.ResourceEventHandler) {
				h.OnAdd(secret(), false)
				h.OnUpdate(secret(), secret(with(token.Record{Hash: token.New().Hash(), Expires: now.Add(time.Hour)})))
			},
		},
		"that is gone": {
			reason: "so is the token", follow: func(h cache.ResourceEventHandler) { h.OnAdd(secret(), false); h.OnDelete(secret()) },
		},
		"that is gone, unseen": {
			reason: "so is the token", follow: func(h cache.ResourceEventHandler) {
				h.OnAdd(secret(), false)
				h.OnDelete(cache.DeletedFinalStateUnknown{Obj: secret()})
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			limits := Limits{}
			limits.Default()
			h := newTokenLimiter(limits, func() time.Time { return now })
			tc.follow(h.eventHandler())
			if got := h.allow(store1, issued.Reveal()); got != tc.want {
				t.Errorf("%s: holds %t", tc.reason, got)
			}
			for _, other := range []string{"", "spokelet.", token.New().Reveal(), issued.Reveal() + "A"} {
				if h.allow(store1, other) {
					t.Errorf("%q passes for the token", other)
				}
			}
		})
	}
}

func TestTokenLimiterKeepsBudgetOfUsedToken(t *testing.T) {
	h := newHarness(t, managedCluster())
	issued := h.hold(store1)
	holders, burst := h.enroller.limiter.tokenLimiter, h.enroller.limiter.limits.TokenBurst
	for range burst {
		if !holders.allow(store1, issued.Reveal()) {
			t.Fatal("refused within the burst")
		}
	}
	h.seen(store1)
	if holders.allow(store1, issued.Reveal()) {
		t.Error("a write of the record gives its token another burst")
	}
}
