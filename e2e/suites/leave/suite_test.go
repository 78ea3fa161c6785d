// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leave tests what is left when works, namespaces, agents and clusters go.
//
// It leaves no cluster joined: where suites share the clusters it is the last of those
// that need one.
package leave

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestLeave(t *testing.T) {
	s := &tests{testbed.Open(t)}
	testbed.InOrder(t, 1,
		testbed.Step{Name: "there are pods and works", Run: s.Populate},
		testbed.Step{Name: "a deleted work leaves nothing behind", Run: s.workIsDeleted},
		testbed.Step{Name: "a deleted namespace leaves no pods in the spoke", Run: s.podsLeave},
		testbed.Step{Name: "both clusters at the same time", Run: func(t *testing.T) {
			s.MakeNamespace(t, leftNamespace)
			testbed.Parallel(t, map[string]func(*testing.T){
				"the first": func(t *testing.T) {
					testbed.InOrder(t, 0,
						testbed.Step{Name: "the agent uninstalls while works exist", Run: s.agentUninstalls},
						testbed.Step{Name: "detach removes every trace of a cluster", Run: s.detach},
					)
				},
				"detach ends what controllers make again": s.detachBusy,
			})
		}},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}
