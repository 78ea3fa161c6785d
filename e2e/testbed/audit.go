// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
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

// AuditSince lists the requests of our identities since an offset, those that
// a rest allows left out.
func AuditSince(t *testing.T, s *Site, offset int64) []string {
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

// UntilNothingIsAsked waits for a time in which none of our identities asks any of the
// clusters for anything that a rest does not allow.
func (s *Testbed) UntilNothingIsAsked(t *testing.T, window time.Duration) {
	t.Helper()
	sites := append([]*Site{s.Hub}, s.Spokes...)
	Until(t, "a time without requests", Settle, func(context.Context) error {
		marks := make([]int64, len(sites))
		for i, site := range sites {
			marks[i] = AuditSize(t, site)
		}
		Wait(t, window)
		for i, site := range sites {
			if requests := AuditSince(t, site, marks[i]); len(requests) > 0 {
				return fmt.Errorf("%s: %d requests, such as %s", site.Name, len(requests), requests[0])
			}
		}
		return nil
	})
}
