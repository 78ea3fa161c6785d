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
		// The agent keeps its copy of the works two seconds after the last change, and rights
		// that have changed are looked at again for ten.
		calm = 10 * time.Second
	)
	// What the clusters' own controllers have still to do after the steps before, such as
	// removing definitions and namespaces, concerns us too. If it does not end, the window
	// tells of what goes on.
	if last := s.UntilCalm(t, calm); last != "" {
		t.Logf("there is no calm before the rest: %s", last)
	}
	sites := append([]*testbed.Site{s.Hub}, s.Spokes...)
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
