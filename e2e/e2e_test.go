// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// vital is how many of the first steps all others rest on.
const vital = 3

// TestEndToEnd runs the steps in order: each one finds what the ones before it
// have left.
func TestEndToEnd(t *testing.T) {
	s := newSuite(t)
	steps := []struct {
		name string
		run  func(*testing.T)
	}{
		{"the hub cannot dial a spoke", s.hubCannotDial},
		{"helm installs the hub", s.installHub},
		{"helm install of the agent joins a cluster", s.joinSpokes},
		{"the charts' own tests pass", s.chartTests},
		{"a node is ready with the capacity of its spoke", s.nodeIsLive},
		{"the kubelet endpoint answers those who may ask", s.kubeletEndpoint},
		{"a pod on a virtual node runs in its spoke", s.podsRun},
		{"kubectl answers for a pod as its cluster does", s.verbsAgree},
		{"a virtual node answers as a kubelet", s.nodeAnswers},
		{"a pod that cannot run there says why", s.podsRefused},
		{"a view shows the spoke as it is now", s.viewIsLive},
		{"a view of many clusters answers for each", s.viewOfMany},
		{"the proxy acts as its caller", s.proxyActsAsCaller},
		{"what takes a minute", s.takesAMinute},
		{"bad views and paths are refused by name", s.badInput},
		{"a work is applied, updated and pruned", s.workIsApplied},
		{"one bad manifest does not stop the others", s.badManifest},
		{"manifests that are too large are refused by name", s.largeManifests},
		{"works act as their account", s.worksActAsTheirAccount},
		{"drift is repaired on the event", s.driftIsRepaired},
		{"the documents' examples run", s.documentExamples},
		{"ManifestWork is as its clients expect", s.worksConform},
		{"audit logs at rest show nobody of ours", s.auditAtRest},
		{"another replica executes works when one leaves", s.executorIsReplaced},
		{"pods survive a restart of the agent", s.agentRestartIsSurvived},
		{"a cut tunnel is survived", s.cutIsSurvived},
		{"a hub restart is survived", s.hubRestartIsSurvived},
		{"a cluster that is no longer accepted is cut off", s.acceptanceIsLive},
		{"a deleted work leaves nothing behind", s.workIsDeleted},
		{"a deleted namespace leaves no pods in the spoke", s.podsLeave},
		{"the agent uninstalls while works exist", s.agentUninstalls},
		{"detach removes every trace of a cluster", s.detach},
		{"detach ends the pods of a cluster", s.detachEndsPods},
		{"no race was seen", s.noRace},
		{"hostile spokes cost no more than they may", s.hostileSpokes},
	}
	for i, step := range steps {
		if !t.Run(step.name, step.run) && i < vital {
			t.Fatalf("stopped after %q", step.name)
		}
	}
}

// takesAMinute runs beside each other what mostly waits.
func (s *suite) takesAMinute(t *testing.T) {
	tests := map[string]func(*testing.T){
		"a watch through the proxy outlives it": s.watchOutlivesAMinute,
		"top shows nodes and pods":              s.topAgrees,
		"a virtual node is drained":             s.nodeIsDrained,
	}
	for _, c := range s.clients() {
		tests["idle streams live, "+c.name] = func(t *testing.T) { s.idleStreamsLive(t, c) }
		if c.name == "SPDY" {
			tests["output that is read late is whole"] = func(t *testing.T) { s.outputIsReadLate(t, c) }
		}
	}
	s.machinesNamespace(t)
	for _, c := range s.clientsOf(s.spokes[1]) {
		tests["the machine of a node is debugged, "+c.name] = func(t *testing.T) { s.machineIsDebugged(t, c) }
	}
	parallel(t, tests)
}
