// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live tests the live API: views, and the proxy to a spoke.
package live

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestLive(t *testing.T) {
	s := &tests{testbed.Open(t)}
	testbed.InOrder(t, 1,
		testbed.Step{Name: "alice may view", Run: s.LetAliceView},
		testbed.Step{Name: "beside each other", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"a view shows the spoke as it is now":         s.viewIsLive,
				"a view of many clusters answers for each":    s.viewOfMany,
				"the proxy acts as its caller":                s.proxyActsAsCaller,
				"bad views and paths are refused by name":     s.badInput,
				"a watch through the proxy outlives a minute": s.watchOutlivesAMinute,
			})
		}},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}
