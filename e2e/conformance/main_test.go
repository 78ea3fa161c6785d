// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryCaseIsReadable(t *testing.T) {
	s := &stage{t: t, ns: "ns"}
	names := map[string]bool{}
	for _, set := range [][]section{sections(Target{EvictionGrace: 1, ExecutorCaches: true}), sections(Target{RawFeedback: true, Sections: []string{"raw"}})} {
		for _, section := range set {
			for name, c := range section.cases {
				names[section.name+"/"+name] = true
				if c.reason == "" {
					t.Errorf("%s/%s has no reason", section.name, name)
				}
				if c.spec != "" && s.object(c.spec)["workload"] == nil {
					t.Errorf("%s/%s has no manifests", section.name, name)
				}
				if lines := expand(s.text(c.want)); c.want != "" && (len(lines) < 2 || lines[0] != "work") {
					t.Errorf("%s/%s wants %q", section.name, name, lines)
				}
			}
		}
	}
	t.Logf("%d cases", len(names))
}
