// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) hubCannotDial(t *testing.T) {
	const apiServer = "6443"
	dial := func(from, to *testbed.Site) error {
		_, err := from.Exec(t.Context(), "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+to.Address+"/"+apiServer)
		return err
	}
	if err := dial(s.Hub, s.Spoke()); err == nil {
		t.Error("the hub opened a connection to the spoke's API server")
	}
	if err := dial(s.Spoke(), s.Hub); err != nil {
		t.Errorf("the other direction must be open, or the step above proves nothing: %v", err)
	}
}

func (s *tests) chartTests(t *testing.T) {
	tests := func(on *testbed.Site, release, namespace string) func(*testing.T) {
		return func(t *testing.T) {
			out, err := s.Env.Helm(on.Cluster).Run(t.Context(), "test", release, "--namespace", namespace, "--timeout", "2m")
			if err != nil || !strings.Contains(out, "Succeeded") {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
	testbed.Parallel(t, map[string]func(*testing.T){
		"hub":   tests(s.Hub, "spokelet-hub", env.HubNamespace),
		"agent": tests(s.Spoke(), "spokelet-agent", env.AgentNamespace),
	})
}

// podRuns makes one pod, for installations of which no other suite asks for more.
func (s *tests) podRuns(t *testing.T) {
	const name = "first"
	s.Hub.Apply(t, s.Pod(name, testbed.Container("main", "echo hello; "+testbed.Forever, "")))
	testbed.UntilPod(t, s.Hub, name, "ready", testbed.Ready)
	if got := s.Hub.InPods(t, "logs", name); got != "hello\n" {
		t.Errorf("logs: got %q", got)
	}
	if got := s.Hub.InPods(t, "exec", name, "--", "hostname"); got != name+"\n" {
		t.Errorf("exec: got %q", got)
	}
	s.Hub.InPods(t, "delete", "pod", name, "--timeout=300s")
}
