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
		testbed.Step{Name: "a work is applied, updated and pruned", Run: s.workIsApplied},
		testbed.Step{Name: "one bad manifest does not stop the others", Run: s.badManifest},
		testbed.Step{Name: "manifests that are too large are refused by name", Run: s.largeManifests},
		testbed.Step{Name: "works act as their account", Run: s.worksActAsTheirAccount},
		testbed.Step{Name: "drift is repaired on the event", Run: s.driftIsRepaired},
		testbed.Step{Name: "the documents' examples run", Run: s.documentExamples},
		testbed.Step{Name: "ManifestWork is as its clients expect", Run: s.worksConform},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}
