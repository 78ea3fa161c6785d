// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"
	"time"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) auditAtRest(t *testing.T) {
	s.Hub.Kubectl(t, "wait", "--for=condition=Ready", "node/spoke1", "node/spoke2", "--timeout=90s")
	const (
		window = 60 * time.Second
		// The agent keeps its copy of the works two seconds after the last change.
		calm = 10 * time.Second
	)
	sites := append([]*testbed.Site{s.Hub}, s.Spokes...)
	s.untilCalm(t, calm, sites)
	marks := make([]int64, len(sites))
	for i, site := range sites {
		marks[i] = testbed.AuditSize(t, site)
	}
	testbed.Wait(t, window)
	for i, site := range sites {
		for _, request := range testbed.AuditSince(t, site, marks[i]) {
			t.Errorf("%s: a request at rest: %s", site.Name, request)
		}
	}
}

// untilCalm waits for a time without a request of ours: what the clusters' own
// controllers have still to do after the steps before, such as removing definitions
// and namespaces, concerns us too.
func (s *tests) untilCalm(t *testing.T, calm time.Duration, sites []*testbed.Site) {
	t.Helper()
	limit := time.Now().Add(testbed.Settle)
	for {
		busy := 0
		marks := make([]int64, len(sites))
		for i, site := range sites {
			marks[i] = testbed.AuditSize(t, site)
		}
		testbed.Wait(t, calm)
		for i, site := range sites {
			busy += len(testbed.AuditSince(t, site, marks[i]))
		}
		if busy == 0 || time.Now().After(limit) {
			return // the window tells of what goes on
		}
	}
}
