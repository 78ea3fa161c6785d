// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net/url"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) hubCannotDial(t *testing.T) {
	target, err := url.Parse(s.Spoke().REST.Host)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(from *testbed.Site, host string, port string) error {
		_, err := from.Exec(t.Context(), "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port)
		return err
	}
	if err := dial(s.Hub, target.Hostname(), target.Port()); err == nil {
		t.Error("the hub opened a connection to the spoke's API server")
	}
	back, err := url.Parse(s.Hub.REST.Host)
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(s.Spoke(), back.Hostname(), back.Port()); err != nil {
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
