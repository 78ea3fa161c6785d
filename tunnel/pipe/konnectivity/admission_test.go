// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"testing"

	"github.com/spokelet/spokelet/tunnel/bufconn"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// What TLS lets through is in TestPipe.
func TestAdmissionReadsVerifiedChainsOnly(t *testing.T) {
	authority := newAuthority(t)
	leaf := issue(t, authority, authority.NewCluster("store1").URI(), nil).Leaf
	cases := map[string]struct {
		state tls.ConnectionState
		want  error
	}{
		"a verified chain":          {tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}, nil},
		"no certificate":            {tls.ConnectionState{}, pipe.ErrStranger},
		"an unverified certificate": {tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}, pipe.ErrStranger},
		"an empty chain":            {tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, pipe.ErrStranger},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &admission{hubID: authority.HubID, admit: admitAll, perCluster: 1, pipes: map[identity.Cluster]int{}}
			peer, leave, err := a.enter(t.Context(), tc.state, "a", bufconn.Addr("remote"))
			if !errors.Is(err, tc.want) {
				t.Fatalf("enter() = %v, want %v", err, tc.want)
			}
			if err != nil && (leave != nil || peer != (pipe.Peer{})) {
				t.Errorf("enter() = %v beside an error", peer)
			}
		})
	}
}

func TestRefusalClassTellsNothingOfAnUnknownError(t *testing.T) {
	if told := refusalClass(errors.New("secret")); told.Error() != pipe.ErrRefused.Error() {
		t.Errorf("the peer is told %q", told)
	}
}

func TestStreamEndIsNeverClean(t *testing.T) {
	for _, reason := range []error{nil, io.EOF, errors.Join(io.EOF), pipe.ErrLost} {
		err := streamEnd("agent", reason)
		if errors.Is(err, io.EOF) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("streamEnd(%v) = %v", reason, err)
		}
	}
}
