// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"

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
	f.Fuzz(func(t *testing.T, cluster, joinToken string, csr []byte, uid string) {
		h := newHarness(t, managedCluster())
		h.issueToken(store1)
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

// FuzzRequest plays an agent with a valid token whose request is anything: what
// is signed is the cluster's one name, or nothing.
func FuzzRequest(f *testing.F) {
	csr, err := identity.NewRequest(newKey(f), identity.Cluster{Name: store1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add(csr[:len(csr)-1])
	f.Fuzz(func(t *testing.T, csr []byte) {
		h := newHarness(t, managedCluster())
		response, err := h.Enroller().Enroll(t.Context(), &rpcv1.EnrollRequest{
			Cluster: store1, Token: h.issueToken(store1).Reveal(), Csr: csr, KubeSystemUid: store1NS,
		})
		if err != nil {
			if status.Code(err) != codes.InvalidArgument || h.bound(store1) {
				t.Errorf("Enroll: %v; token bound: %v", err, h.bound(store1))
			}
			return
		}
		if got, err := identity.ClusterOf(leafOf(t, response.GetCertificateChain())); err != nil || got != h.identity(store1, store1ID) {
			t.Errorf("certificate of %v, %v", got, err)
		}
	})
}
