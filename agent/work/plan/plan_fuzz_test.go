// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/record"
)

// FuzzPlan plans two manifests over what is tracked. What is removed was
// tracked, and no manifest may still mean it; nothing is removed while a
// manifest cannot be read; no object has two steps.
func FuzzPlan(f *testing.F) {
	f.Add(manifestOf("Other", "a", "old"), manifestOf("Other", "a", "new"), true)
	f.Add(manifestOf("Unknown", "a", "old"), manifestOf("Other", "", "old"), false)
	f.Add([]byte("{"), manifestOf("Other", "a", "new"), true)
	f.Add(manifestOf("Other", "a", "x"), manifestOf("Other", "a", "x"), false)
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Other","metadata":{"name":"old"}}]}`), []byte(`{}`), true)
	f.Fuzz(func(t *testing.T, first, second []byte, fenced bool) {
		var allowed []string
		if fenced {
			allowed = []string{"a"}
		}
		manifests := []manifest.Manifest{manifest.Parse(0, first), manifest.Parse(1, second)}
		steps := Build(t.Context(), manifests, resolveAny, allowed)
		if len(steps) != len(manifests) {
			t.Fatalf("%d steps for %d manifests", len(steps), len(manifests))
		}
		all := map[manifest.ObjectID]record.Object{}
		for _, name := range []string{"old", "new"} {
			id := manifest.ObjectID{Resource: "others", Namespace: "a", Name: name}
			all[id] = record.Object{Target: manifest.Target{ObjectID: id, Version: "v1", Kind: "Other"}, UID: "u"}
		}
		wanted := checkSteps(t, steps, fenced)
		gone := RemovedObjects(all, steps)
		for _, r := range gone {
			if _, ok := all[r.ObjectID]; !ok {
				t.Errorf("%v is removed, and was never tracked", r.ObjectID)
			}
			if wanted[r.ObjectID] {
				t.Errorf("%v is removed, and wanted", r.ObjectID)
			}
			for _, m := range manifests {
				if m.GVK.Kind == "" || m.Name == "" {
					t.Errorf("%v is removed, and a manifest that cannot be read may mean it", r.ObjectID)
				}
			}
		}
		count := 0
		for _, wave := range DeletionWaves(gone) {
			count += len(wave)
		}
		if count != len(gone) {
			t.Errorf("%d objects in waves, want %d", count, len(gone))
		}
	})
}

// checkSteps returns the objects that the steps are about.
func checkSteps(t *testing.T, steps []Step, fenced bool) map[manifest.ObjectID]bool {
	t.Helper()
	wanted := map[manifest.ObjectID]bool{}
	for _, s := range ApplicableSteps(steps) {
		if s.Error != nil {
			continue
		}
		if wanted[s.Target.ObjectID] {
			t.Errorf("%v has two steps", s.Target.ObjectID)
		}
		if fenced && s.Target.Namespace != "a" {
			t.Errorf("%v is outside of what the agent allows", s.Target.ObjectID)
		}
		wanted[s.Target.ObjectID] = true
	}
	return wanted
}
