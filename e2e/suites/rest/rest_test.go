// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) auditAtRest(t *testing.T) {
	s.Hub.Kubectl(t, "wait", "--for=condition=Ready", "node/spoke1", "node/spoke2", "--timeout=180s")
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
	requests := make([][]env.Request, len(sites))
	for i, site := range sites {
		var err error
		if requests[i], err = env.AuditSince(site.Cluster, marks[i]); err != nil {
			t.Fatal(err)
		}
	}
	// A kubelet writes the status of a pod that does nothing, too, such as a minute after it
	// was started. The hub passes each of these on, once.
	byKubelets := map[string]int{}
	for _, r := range slices.Concat(requests[1:]...) {
		if ofStatus(r) && strings.HasPrefix(r.User.Username, "system:node:") {
			byKubelets[r.ObjectRef.Name]++
		}
	}
	for i, site := range sites {
		for _, r := range requests[i] {
			if !r.Ours() || r.AllowedAtRest() {
				continue
			}
			if ofStatus(r) && byKubelets[r.ObjectRef.Name] > 0 {
				byKubelets[r.ObjectRef.Name]--
				continue
			}
			t.Errorf("%s: a request at rest: %s", site.Name, r)
		}
	}
}

// ofStatus tells whether a request writes the status of a pod.
func ofStatus(r env.Request) bool {
	return r.Verb == "patch" && r.ObjectRef.Resource == "pods" && r.ObjectRef.Subresource == "status"
}
