// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/internal/testing/pipetest"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestValidateProcess(t *testing.T) {
	cases := map[string]struct {
		reason  string
		process string
		want    error
	}{
		"a pod's name": {"what agents use", "spokelet-agent-7d9f8b6c5-x2x4k", nil},
		"a UUID":       {"what agents may use", identity.NewID(), nil},
		"63 bytes":     {"the longest", strings.Repeat("a", 63), nil},
		"64 bytes":     {"too long", strings.Repeat("a", 64), pipe.ErrProcess},
		"empty":        {"nothing to tell apart by", "", pipe.ErrProcess},
		"a slash":      {"separates the cluster's name", "store2/a", pipe.ErrProcess},
		"upper case":   {"one spelling", "Agent", pipe.ErrProcess},
		"a newline":    {"log injection", "a\nb", pipe.ErrProcess},
		"an ampersand": {"konnectivity's identifiers are a query", "a&host=b", pipe.ErrProcess},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := pipe.ValidateProcess(tc.process); !errors.Is(err, tc.want) {
				t.Errorf("%s: ValidateProcess(%q) = %v, want %v", tc.reason, tc.process, err, tc.want)
			}
		})
	}
}

func TestGate(t *testing.T) {
	authority := pipetest.NewAuthority(t)
	cluster := authority.Cluster("store1")
	verified := state(authority.Issue(t, cluster.URI(), nil))
	refuse := func(context.Context, identity.Cluster) error { return errors.New("no") }
	admit := func(context.Context, identity.Cluster) error { return nil }
	unverified := verified
	unverified.VerifiedChains = nil
	unverified.PeerCertificates = verified.VerifiedChains[0]
	cases := map[string]struct {
		reason  string
		hubID   string
		admit   pipe.Admit
		state   tls.ConnectionState
		process string
		want    error
	}{
		"a cluster of this hub":     {"the way in", authority.HubID, admit, verified, "a", nil},
		"a cluster of another hub":  {"one authority may serve two hubs", identity.NewID(), admit, verified, "a", pipe.ErrStranger},
		"no certificate":            {"nobody", authority.HubID, admit, tls.ConnectionState{}, "a", pipe.ErrStranger},
		"an unverified certificate": {"sent is not verified", authority.HubID, admit, unverified, "a", pipe.ErrStranger},
		"an empty chain":            {"nobody", authority.HubID, admit, tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, "a", pipe.ErrStranger},
		"a bad process":             {"not in the grammar", authority.HubID, admit, verified, "A", pipe.ErrProcess},
		"not admitted":              {"the hub's decision", authority.HubID, refuse, verified, "a", pipe.ErrNotAdmitted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gate := pipe.NewGate(tc.hubID, tc.admit, 1)
			peer, leave, err := gate.Enter(t.Context(), tc.state, tc.process, pipe.Addr("remote"))
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s: Enter() = %v, want %v", tc.reason, err, tc.want)
			}
			if err != nil {
				if leave != nil || peer != (pipe.Peer{}) {
					t.Errorf("%s: Enter() = %v beside an error", tc.reason, peer)
				}
				if told := pipe.Refusal(err); !errors.Is(told, tc.want) || told.Error() != tc.want.Error() {
					t.Errorf("%s: the peer is told %q, want %q", tc.reason, told, tc.want)
				}
				return
			}
			if peer.Cluster != cluster {
				t.Errorf("%s: peer is %v, want %v", tc.reason, peer.Cluster, cluster)
			}
			leave()
		})
	}
}

func state(cert tls.Certificate) tls.ConnectionState {
	return tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert.Leaf}}}
}

func TestGateCountsByCluster(t *testing.T) {
	authority := pipetest.NewAuthority(t)
	gate := pipe.NewGate(authority.HubID, func(context.Context, identity.Cluster) error { return nil }, 2)
	one := state(authority.Issue(t, authority.Cluster("store1").URI(), nil))
	other := state(authority.Issue(t, authority.Cluster("store1").URI(), nil))
	enter := func(s tls.ConnectionState) (func(), error) {
		_, leave, err := gate.Enter(t.Context(), s, "a", pipe.Addr("remote"))
		return leave, err
	}
	leave, err := enter(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter(one); err != nil {
		t.Fatal(err)
	}
	if _, err := enter(one); !errors.Is(err, pipe.ErrTooMany) {
		t.Errorf("Enter() a third time = %v, want %v", err, pipe.ErrTooMany)
	}
	if _, err := enter(other); err != nil {
		t.Errorf("Enter() of another cluster of that name = %v", err)
	}
	leave()
	leave() // Once only counts.
	if _, err := enter(one); err != nil {
		t.Errorf("Enter() after one left = %v", err)
	}
	if _, err := enter(one); !errors.Is(err, pipe.ErrTooMany) {
		t.Errorf("Enter() after one left, a second time = %v, want %v", err, pipe.ErrTooMany)
	}
}

func TestRefusalOfAnUnknownErrorTellsNothing(t *testing.T) {
	if told := pipe.Refusal(errors.New("secret")); told.Error() != pipe.ErrRefused.Error() {
		t.Errorf("the peer is told %q", told)
	}
}

func TestAStreamNeverEndsCleanly(t *testing.T) {
	for _, reason := range []error{nil, io.EOF, errors.Join(io.EOF), pipe.ErrLost} {
		err := pipe.StreamEnd("agent", reason)
		if errors.Is(err, io.EOF) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("StreamEnd(%v) = %v", reason, err)
		}
	}
}
