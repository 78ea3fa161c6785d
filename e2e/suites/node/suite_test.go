// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node tests virtual nodes and the pods on them, as kubectl and a scheduler see
// them.
package node

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct {
	*testbed.Testbed

	metrics *env.MetricsServer
}

func TestNode(t *testing.T) {
	s := &tests{Testbed: testbed.Open(t)}
	var err error
	if s.metrics, err = s.Env.MetricsServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	testbed.InOrder(t, 2,
		testbed.Step{Name: "a node is ready with the capacity of its spoke", Run: s.nodeIsLive},
		testbed.Step{Name: "there is a pod", Run: s.podIsReady},
		testbed.Step{Name: "the kubelet endpoint answers those who may ask", Run: s.kubeletEndpoint},
		testbed.Step{Name: "a pod on a virtual node runs in its spoke", Run: s.podsRun},
		testbed.Step{Name: "a virtual node answers as a kubelet", Run: s.nodeAnswers},
		testbed.Step{Name: "kubectl answers for a pod as its cluster does", Run: s.verbsAgree},
		testbed.Step{Name: "beside each other", Run: s.runParallel},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}

// runParallel runs what touches nothing of each other, and mostly waits.
func (s *tests) runParallel(t *testing.T) {
	s.machinesNamespace(t)
	tests := map[string]func(*testing.T){
		"top shows nodes and pods":  s.topAgrees,
		"a virtual node is drained": s.nodeIsDrained,
	}
	for _, c := range s.Clients() {
		tests["idle streams live, "+c.Name] = func(t *testing.T) { s.idleStreamsLive(t, c) }
		if c.Name == "SPDY" {
			tests["output that is read late is whole"] = func(t *testing.T) { s.outputIsReadLate(t, c) }
		}
	}
	for _, c := range s.ClientsOf(s.Spokes[1]) {
		tests["the machine of a node is debugged, "+c.Name] = func(t *testing.T) { s.machineIsDebugged(t, c) }
	}
	testbed.Parallel(t, tests)
}
