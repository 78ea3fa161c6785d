// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package join tests installation and joining, the way users do it: helm, the plugin, and a hub that cannot
// open a connection to a spoke.
//
// Where suites share the clusters it is the first, and leaves what it has installed.
package join

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestJoin(t *testing.T) {
	s := &tests{testbed.New(t)}
	testbed.InOrder(t, 3,
		testbed.Step{Name: "before anything is installed", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"what the other suites need is built": s.buildPrograms,
				"the hub cannot dial a spoke":         s.hubCannotDial,
			})
		}},
		testbed.Step{Name: "helm installs the hub", Run: s.InstallHub},
		testbed.Step{Name: "helm install of the agent joins a cluster", Run: s.JoinSpokes},
		testbed.Step{Name: "the charts' own tests pass", Run: s.chartTests},
		testbed.Step{Name: "a pod of the hub runs in the spoke", Run: s.podRuns},
	)
}

// buildPrograms takes minutes the first time, in which nothing else should be waited for.
func (s *tests) buildPrograms(t *testing.T) {
	for _, name := range []string{"spokelet-hub", "spokelet-agent"} {
		if _, err := s.Env.Build.Image(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Env.MetricsServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}
