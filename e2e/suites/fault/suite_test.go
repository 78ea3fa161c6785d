// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fault tests what goes away and comes back: agents, the hub, the network, the consent
// to a cluster.
//
// No other suite may run beside it.
package fault

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestFaults(t *testing.T) {
	s := &tests{testbed.Open(t)}
	testbed.InOrder(t, 2,
		testbed.Step{Name: "there are pods and works", Run: s.Populate},
		testbed.Step{Name: "alice may view", Run: s.LetAliceView},
		testbed.Step{Name: "another replica executes works when one leaves", Run: s.executorIsReplaced},
		testbed.Step{Name: "pods survive a restart of the agent", Run: s.agentRestartIsSurvived},
		testbed.Step{Name: "a cut tunnel is survived", Run: s.cutIsSurvived},
		testbed.Step{Name: "a hub restart is survived", Run: s.hubRestartIsSurvived},
		testbed.Step{Name: "a cluster that is no longer accepted is cut off", Run: s.acceptanceIsLive},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}
