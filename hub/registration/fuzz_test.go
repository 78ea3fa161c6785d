// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// FuzzEnroll plays a stranger who has no token: whatever it sends, it is refused,
// in a code that its agent understands, and nothing is bound or pinned.
func FuzzEnroll(f *testing.F) {
	csr, err := identity.NewRequest(newKey(f), identity.Cluster{Name: store1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(store1, token.Token{}.Reveal(), csr, store1NS)
	f.Add("kube-system", "", csr[:40], "")
	f.Add("store1\x00", "spokelet.", []byte{0x30, 0x80}, "a/../b")
	h := newHarness(f, managedCluster())
	h.issueToken(store1)
	h.enroller.limiter = unlimited()
	f.Fuzz(func(t *testing.T, cluster, joinToken string, csr []byte, uid string) {
		h.t, h.events.Events = t, nil
		response, err := h.Enroller().Enroll(t.Context(), &rpcv1.EnrollRequest{
			Cluster: cluster, Token: joinToken, Csr: csr, KubeSystemUid: uid,
		})
		if code := status.Code(err); response != nil || (code != codes.InvalidArgument && code != codes.PermissionDenied) {
			t.Errorf("Enroll: %v, %v", response, err)
		}
		if h.bound(store1) || h.get(store1).Annotations[AnnotationKubeSystemUID] != "" {
			t.Error("a stranger bound a token or pinned a UID")
		}
	})
}

// unlimited lets one caller try as often as the fuzzer does.
func unlimited() *limiter {
	return newLimiter(Limits{Concurrent: 8, AttemptsPerMinute: 1 << 40, Burst: 1 << 40, Addresses: 1}, time.Now)
}

// FuzzRequest plays an agent with a valid token whose request is anything: what
// passes is signed for the cluster's one name.
func FuzzRequest(f *testing.F) {
	csr, err := identity.NewRequest(newKey(f), identity.Cluster{Name: store1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add(csr[:len(csr)-1])
	h := newHarness(f)
	who := h.identity(store1, store1ID)
	f.Fuzz(func(t *testing.T, der []byte) {
		request, err := parseRequest(der)
		if err == nil {
			err = checkRequest(request, who)
		}
		if err != nil {
			if !errors.Is(err, errRequest) {
				t.Errorf("refused without a class: %v", err)
			}
			return
		}
		chain, _, err := h.authority.IssueCluster(who, request)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := identity.ClusterOf(leafOf(t, chain)); err != nil || got != who {
			t.Errorf("certificate of %v, %v", got, err)
		}
	})
}
