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
		testbed.Step{Name: "beside each other", Run: func(t *testing.T) {
			s.machinesNamespace(t)
			// The first two mostly wait, and the third is of the other spoke.
			testbed.Parallel(t, map[string]func(*testing.T){
				"idle streams live":                 s.idleStreamsLive,
				"top shows nodes and pods":          s.topAgrees,
				"the machine of a node is debugged": s.machineIsDebugged,
				"pods and kubectl": func(t *testing.T) {
					testbed.InOrder(t, 0,
						testbed.Step{Name: "a pod on a virtual node runs in its spoke", Run: s.podsRun},
						testbed.Step{Name: "a virtual node answers as a kubelet", Run: s.nodeAnswers},
						testbed.Step{Name: "kubectl answers for a pod as its cluster does", Run: s.verbsAgree},
					)
				},
			})
		}},
		// Not beside the others: pods wait for a node that is cordoned.
		testbed.Step{Name: "beside each other, at the end", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"a virtual node is drained": s.nodeIsDrained,
			})
		}},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
	)
}

// webSocket is the kubectl of the clusters' release.
func (s *tests) webSocket() testbed.Client { return s.Clients()[0] }
