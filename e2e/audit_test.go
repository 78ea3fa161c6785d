// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
)

func auditSize(t *testing.T, s *site) int64 {
	t.Helper()
	size, err := env.AuditSize(s.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// auditSince lists the requests of our identities since an offset, those that
// a rest allows left out.
func auditSince(t *testing.T, s *site, offset int64) []string {
	t.Helper()
	var lines []string
	requests, err := env.AuditSince(s.Cluster, offset)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Ours() && !r.AllowedAtRest() {
			lines = append(lines, r.String())
		}
	}
	return lines
}

// countOurs counts the requests of our identities with a verb on a ConfigMap.
func countOurs(t *testing.T, s *site, offset int64, name string, verbs ...string) int {
	t.Helper()
	return countOursOf(t, s, offset, "configmaps", name, verbs...)
}

// countOursOf counts those on an object itself: no streams, no status.
func countOursOf(t *testing.T, s *site, offset int64, resource, name string, verbs ...string) int {
	t.Helper()
	requests, err := env.AuditSince(s.Cluster, offset)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, r := range requests {
		for _, verb := range verbs {
			if r.Ours() && r.Verb == verb && r.ObjectRef.Resource == resource && r.ObjectRef.Subresource == "" && r.ObjectRef.Name == name {
				count++
			}
		}
	}
	return count
}
