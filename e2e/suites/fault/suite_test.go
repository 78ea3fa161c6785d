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
	"github.com/spokelet/spokelet/hack/clusters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of one spoke, the testbed's first.
type tests struct{ *testbed.Testbed }

func TestFaultsOfAPIServer(t *testing.T) {
	first := &tests{testbed.Open(t)}
	second := &tests{first.At(first.Spokes[1])}
	testbed.InOrder(t, 2,
		testbed.Step{Name: "there are pods and works", Run: func(t *testing.T) {
			first.Populate(t)
			second.Populate(t)
		}},
		testbed.Step{Name: "alice may view", Run: first.LetAliceView},
		testbed.Step{Name: "of both clusters at the same time", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"the first": func(t *testing.T) {
					testbed.InOrder(t, 0,
						testbed.Step{Name: "another replica executes works when one leaves", Run: first.executorIsReplaced},
						testbed.Step{Name: "a cut tunnel is survived", Run: func(t *testing.T) { first.cutIsSurvived(t, clusters.Drop) }},
					)
				},
				"the second": func(t *testing.T) {
					testbed.InOrder(t, 0,
						testbed.Step{Name: "a cluster that is no longer accepted is cut off", Run: second.acceptanceIsLive},
						testbed.Step{Name: "pods survive a restart of the agent", Run: second.agentRestartIsSurvived},
						testbed.Step{Name: "a cut tunnel is survived", Run: func(t *testing.T) { second.cutIsSurvived(t, clusters.Reset) }},
					)
				},
			})
		}},
		testbed.Step{Name: "a hub restart is survived", Run: first.hubRestartIsSurvived},
		testbed.Step{Name: "no race was seen", Run: first.NoRace},
	)
}
