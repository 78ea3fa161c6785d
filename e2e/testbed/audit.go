// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"testing"
	"time"

	"github.com/spokelet/spokelet/e2e/env"
)

// AuditSize is the present length of a cluster's audit log.
func AuditSize(t *testing.T, s *Site) int64 {
	t.Helper()
	size, err := env.AuditSize(s.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// disturbing are the requests of our identities that a rest does not allow.
func disturbing(requests []env.Request) (lines []string) {
	for _, r := range requests {
		if r.Ours() && !r.AllowedAtRest() {
			lines = append(lines, r.String())
		}
	}
	return lines
}

// CountOurs counts the requests of our identities with a verb on a ConfigMap.
func CountOurs(t *testing.T, s *Site, offset int64, name string, verbs ...string) int {
	t.Helper()
	return CountOursOf(t, s, offset, "configmaps", name, verbs...)
}

// CountOursOf counts those on an object itself: no streams, no status.
func CountOursOf(t *testing.T, s *Site, offset int64, resource, name string, verbs ...string) int {
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

// lookEvery is the time between two looks at the audit logs.
const lookEvery = 250 * time.Millisecond

// UntilCalm waits until none of our identities has asked any of the clusters, for as long as a
// window, for anything that a rest does not allow: each such request begins the window anew. It
// gives up after Settle, and returns the last of them then.
func (s *Testbed) UntilCalm(t *testing.T, window time.Duration) (last string) {
	t.Helper()
	sites := append([]*Site{s.Hub}, s.Spokes...)
	tails := make([]*env.AuditTail, len(sites))
	for i, site := range sites {
		var err error
		if tails[i], err = env.TailAudit(site.Cluster); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.Now().Add(Settle)
	for since := time.Now(); time.Since(since) < window; {
		if time.Now().After(limit) {
			return last
		}
		Wait(t, lookEvery)
		for i, site := range sites {
			requests, err := tails[i].Next()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range disturbing(requests) {
				since, last = time.Now(), site.Name+": "+r
			}
		}
	}
	return ""
}
