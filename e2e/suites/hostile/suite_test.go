// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile tests what hostile spokes cost the hub at most.
//
// No other suite may run beside it.
package hostile

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestHostile(t *testing.T) {
	s := &tests{testbed.New(t)}
	testbed.InOrder(t, 0,
		testbed.Step{Name: "hostile spokes cost no more than they may", Run: s.hostileSpokes},
	)
}
