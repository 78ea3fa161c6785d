// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"testing"

	"github.com/spokelet/spokelet/e2e/hostile"
)

// hubMemory is the limit of the hub's chart, in MiB.
const hubMemory = 1024

// hostileSpokes attacks the hub beside fifty honest clusters. The hub is the one that
// users have: with the race detector a process needs many times the memory.
func (s *tests) hostileSpokes(t *testing.T) {
	plain := *s.Env
	plain.Build = s.Env.Build.Released(t.Context())
	if err := plain.InstallHub(t.Context()); err != nil {
		t.Fatal(err)
	}
	site, err := hostile.Prepare(t.Context(), &plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
	})
	quiet, err := site.Quiet(t.Context(), hostile.Attack{}, 200)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(quiet)
	for _, attack := range site.Attacks() {
		t.Run(attack.Name, func(t *testing.T) {
			seen, err := site.Watch(t.Context(), attack, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(seen)
			for _, problem := range append(seen.Problems(hubMemory), seen.Written.Problems()...) {
				t.Error(problem)
			}
		})
	}
}
