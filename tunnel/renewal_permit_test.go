// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// signer counts what it is asked to sign, and does not.
type signer struct{ asked int }

var errSigner = errors.New("no key")

func (s *signer) Issue(context.Context, identity.Cluster, []byte) (chain, bundle []byte, err error) {
	s.asked++
	return nil, nil, errSigner
}

func TestRenewalsAreSpaced(t *testing.T) {
	const life = 90 * time.Minute
	one, other := identity.Cluster{Name: "one"}, identity.Cluster{Name: "other"}
	type ask struct {
		at      time.Duration // of the certificate's life
		cluster identity.Cluster
		want    error
	}
	for name, tc := range map[string]struct {
		reason string
		asks   []ask
	}{
		"at once":             {"nobody needs it", []ask{{0, one, errRenewalTooEarly}}},
		"before half of life": {"nobody needs it", []ask{{life/2 - 1, one, errRenewalTooEarly}}},
		"at two thirds":       {"agents ask then", []ask{{life / 3 * 2, one, errSigner}}},
		"near the end":        {"an agent that was away", []ask{{life - 1, one, errSigner}}},
		"again and again": {
			"an attempt counts, whatever came of it",
			[]ask{{life / 2, one, errSigner}, {life/2 + 1, one, errRenewalTooOften}, {life/2 + renewalSpacing - 1, one, errRenewalTooOften}, {life/2 + renewalSpacing, one, errSigner}},
		},
		"after one too early": {"what was refused does not count", []ask{{1, one, errRenewalTooEarly}, {life / 2, one, errSigner}}},
		"another cluster's":   {"clusters do not hold each other up", []ask{{life / 2, one, errSigner}, {life / 2, other, errSigner}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				issuer := &signer{}
				s := &Server{config: ServerConfig{Issuer: issuer}.Default()}
				born := time.Now()
				signed := 0
				for i, a := range tc.asks {
					time.Sleep(time.Until(born.Add(a.at)))
					session := &Session{cluster: a.cluster, notBefore: born, notAfter: born.Add(life), ctx: t.Context()}
					if _, _, err := s.issue(session, nil); !errors.Is(err, a.want) {
						t.Errorf("%s: request %d: %v, want %v", tc.reason, i, err, a.want)
					}
					if errors.Is(a.want, errSigner) {
						signed++
					}
				}
				if issuer.asked != signed {
					t.Errorf("%s: the issuer was asked %d times, want %d", tc.reason, issuer.asked, signed)
				}
			})
		})
	}
}
