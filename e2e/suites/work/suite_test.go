// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package work tests works: what is applied, kept and removed in a spoke, and the documents'
// examples.
package work

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct{ *testbed.Testbed }

func TestWork(t *testing.T) {
	s := &tests{testbed.Open(t)}
	testbed.InOrder(t, 0,
		testbed.Step{Name: "beside each other", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"a work is applied, updated and pruned":            s.workIsApplied,
				"one bad manifest does not stop the others":        s.badManifest,
				"manifests that are too large are refused by name": s.largeManifests,
				"drift is repaired on the event":                   s.driftIsRepaired,
				"a Deployment runs and its status comes back":      s.exampleFeedback,
				"a permission set lets works write more":           s.examplePermissionSet,
				"a Job with a time to live runs once":              s.jobRunsOnce,
				"a manifest of another cluster is applied":         s.exportedManifest,
				"a Job runs once, updated":                         func(t *testing.T) { s.exampleJob(t, "job-update", "Update") },
				"a Job runs once, applied server-side":             func(t *testing.T) { s.exampleJob(t, "job-apply", "ServerSideApply") },
			})
		}},
		// Not beside the others: works may write everything meanwhile.
		testbed.Step{Name: "ManifestWork is as its clients expect", Run: s.worksConform},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}
