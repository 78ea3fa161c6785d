// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest tests that Spokelet leaves API servers alone when nothing happens: pods run,
// works are applied, views are open and objects are shared.
//
// No other suite may run beside it.
package rest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestRest(t *testing.T) {
	s := &tests{testbed.Open(t)}
	testbed.InOrder(t, 3,
		testbed.Step{Name: "there are pods and works", Run: s.Populate},
		testbed.Step{Name: "views are open", Run: s.openViews},
		testbed.Step{Name: "objects are shared", Run: s.shareObjects},
		testbed.Step{Name: "audit logs at rest show nobody of ours", Run: s.auditAtRest},
		testbed.Step{Name: "all of it is removed", Run: s.remove},
	)
}
