// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
	"github.com/spokelet/spokelet/hack/clusters"
)

func (s *tests) cutIsSurvived(t *testing.T, mode clusters.Mode) {
	spoke, name := s.Spoke(), "during-"+strings.ToLower(fmt.Sprint(mode))
	pods := s.beforeCut(t)
	mark := testbed.AuditSize(t, spoke)
	// The steps after it need the network, too.
	t.Cleanup(func() { _ = s.Env.Set.Heal(context.WithoutCancel(t.Context()), spoke.Cluster) })
	if err := s.Env.Set.Cut(t.Context(), spoke.Cluster, mode); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	// 15 s to notice a half-open peer, and some to say so. Without us the node's lease
	// would end after 40 s, and the node be Unknown.
	reason := s.UntilReady(t, spoke.Name, corev1.ConditionFalse, 35*time.Second)
	t.Logf("NotReady %s after the cut: %s", time.Since(start).Round(time.Millisecond), reason)
	if reason != "TunnelDisconnected" {
		t.Errorf("reason: got %q", reason)
	}
	testbed.Refused(t, "a view of a cluster that is away fails at once and says why", s.Hub.As(testbed.Alice, testbed.Platform),
		testbed.ViewManifest(spoke.Name, `{scope: {resource: pods, allNamespaces: true}}`), []string{"create", "-f", "-"}, spoke.Name, "not connected")
	pods.during(t)
	// A change on the hub waits, drift is repaired without it.
	s.Hub.Apply(t, s.ConfigMapWork(name, name))
	s.Spoke().Kubectl(t, "delete", "configmap", "drifts")
	s.UntilValue(t, "drifts", "wanted")
	if err := s.Env.Set.Heal(t.Context(), spoke.Cluster); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	s.UntilReady(t, spoke.Name, corev1.ConditionTrue, testbed.Settle)
	t.Logf("Ready again %s after the network healed", time.Since(start).Round(time.Millisecond))
	pods.after(t)
	s.UntilWork(t, name, "Applied", "True")
	s.UntilValue(t, name, "v")
	// One intent, one object: a first apply creates it, nothing repeats it.
	if got := testbed.CountOurs(t, spoke, mark, name, "create", "patch", "update"); got != 1 {
		t.Errorf("writes of %s: got %d, want 1", name, got)
	}
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", name, "-n", spoke.Name, "--timeout=180s")
	s.UntilGone(t, name)
}

func (s *tests) hubRestartIsSurvived(t *testing.T) {
	spoke := s.Spoke()
	s.NoRace(t)
	mark := testbed.AuditSize(t, spoke)
	out := s.Hub.Kubectl(t, "get", "nodes", spoke.Name, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].lastTransitionTime}")
	s.podsWhile(t, func() {
		s.Hub.Kubectl(t, "delete", "pod", "-n", env.HubNamespace, "-l", "app.kubernetes.io/name=spokelet-hub", "--grace-period=0", "--force")
		s.Hub.Apply(t, s.ConfigMapWork("restart", "restart"))
	})
	start := time.Now()
	s.Hub.Kubectl(t, "rollout", "status", "-n", env.HubNamespace, "deployment/spokelet-hub", "--timeout=180s")
	s.UntilWork(t, "restart", "Applied", "True")
	t.Logf("a work made during the restart is applied after %s", time.Since(start).Round(time.Millisecond))
	s.UntilReady(t, spoke.Name, corev1.ConditionTrue, testbed.Settle)
	if got := s.Hub.Kubectl(t, "get", "nodes", spoke.Name, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].lastTransitionTime}"); got != out {
		t.Logf("the node was NotReady in between: %s, %s", out, got)
	}
	for _, name := range []string{"one", "drifts"} {
		if got := testbed.CountOurs(t, spoke, mark, name, "create", "patch", "update", "delete"); got != 0 {
			t.Errorf("%s was written %d times although nothing changed", name, got)
		}
	}
	if got := testbed.CountOurs(t, spoke, mark, "restart", "create", "patch", "update"); got != 1 {
		t.Errorf("writes of restart: got %d, want 1", got)
	}
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", "restart", "-n", spoke.Name, "--timeout=180s")
}
