// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
	"github.com/spokelet/spokelet/hack/clusters"
)

// completed waits until each of bob's works is.
func (s *tests) completed(t *testing.T, what string, names ...string) {
	t.Helper()
	for _, name := range names {
		s.until(t, works, "bob", name, name+": "+what, func(w object) error { return w.is("Completed") })
	}
}

// scaleAgent of the second spoke, whose replicas are as before when the test ends.
func (s *tests) scaleAgent(ctx context.Context, replicas int) error {
	_, err := s.Spokes[1].Command.Run(ctx, "scale", "deployment", "-n", env.AgentNamespace, "spokelet-agent", fmt.Sprintf("--replicas=%d", replicas))
	return err
}

// clusterIsAway: the agent is stopped, and comes back.
func (s *tests) clusterIsAway(t *testing.T) {
	spoke := s.Spokes[1]
	s.UntilReady(t, spoke.Name, corev1.ConditionTrue, testbed.Settle)
	s.apply(t, work("away-seen", "spoke2", "type: Resource, scope: {resourceType: configmaps, namespace: bob}"))
	seen := s.until(t, works, "bob", "away-seen", "an answer before it is away", func(w object) error { return w.is("Completed") })
	testbed.ReportRaces(t, spoke.Kubectl(t, "logs", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--tail=-1"))
	t.Cleanup(func() { _ = s.scaleAgent(context.WithoutCancel(t.Context()), 1) })
	if err := s.scaleAgent(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.UntilReady(t, "spoke2", corev1.ConditionFalse, testbed.Settle)
	offset := testbed.AuditSize(t, spoke)
	s.apply(t, work("away-view", "spoke2", "type: Resource, scope: {resourceType: configmaps, namespace: bob, labelSelector: {none: none}}"))
	s.apply(t, work("away-act", "spoke2", configMap("Create", "away-made", "{}")))
	for _, name := range []string{"away-view", "away-act"} {
		s.until(t, works, "bob", name, "a cluster that is away", func(w object) error { return w.is("Processing", `cluster "spoke2" is not connected`) })
	}
	s.fanOutNamesAway(t)
	if now, err := s.get(t.Context(), works, "bob", "away-seen"); err != nil || now.GetResourceVersion() != seen.GetResourceVersion() {
		t.Errorf("what was answered before is not as it was: %v, %s", err, now.field("status"))
	}
	if err := s.scaleAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.completed(t, "it is back", "away-view", "away-act")
	s.fanOutIsWhole(t)
	for _, name := range []string{"away-made", "away-fanned"} {
		if n := s.creations(t, spoke, offset, name); n != 1 {
			t.Errorf("%s was created by %d requests, want one", name, n)
		}
	}
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "away-seen", "away-view", "away-act")
}

// creations counts requests to create a ConfigMap in bob's namespace, of a name that
// begins so, whatever became of them.
func (s *tests) creations(t *testing.T, on *testbed.Site, offset int64, prefix string) (n int) {
	t.Helper()
	requests, err := env.AuditSince(on.Cluster, offset)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Verb == "create" && r.ObjectRef.Resource == "configmaps" && r.ObjectRef.Namespace == "bob" && strings.HasPrefix(r.ObjectRef.Name, prefix) {
			n++
		}
	}
	return n
}

// hubIsKilled in the middle of many actions: each is done once.
func (s *tests) hubIsKilled(t *testing.T) {
	s.NoRace(t) // the log of its pod goes
	s.interrupted(t, "hub", func() {
		s.Hub.Kubectl(t, "delete", "pod", "-n", env.HubNamespace, "-l", "app.kubernetes.io/name=spokelet-hub", "--grace-period=0", "--force")
	})
}

// tunnelIsCut in the middle of many actions and of an installation: each is done once, and the
// hub is told of it when the cluster is back.
func (s *tests) tunnelIsCut(t *testing.T) {
	spoke := s.Spoke().Cluster
	t.Cleanup(func() { _ = s.Env.Set.Heal(context.WithoutCancel(t.Context()), spoke) })
	s.installing(t, "slow-cut", "slow.tgz")
	s.interrupted(t, "tunnel", func() {
		if err := s.Env.Set.Cut(t.Context(), spoke, clusters.Reset); err != nil {
			t.Fatal(err)
		}
		s.UntilReady(t, spoke.Name, corev1.ConditionFalse, testbed.Settle)
		if w, err := s.get(t.Context(), works, "bob", "slow-cut"); err != nil || w.is("Processing") != nil {
			t.Logf("the installation was over before the cut: %v, %v", w.is("Processing"), err)
		}
		if err := s.Env.Set.Heal(t.Context(), spoke); err != nil {
			t.Fatal(err)
		}
	})
	s.until(t, works, "bob", "slow-cut", "the tunnel was cut", func(w object) error { return w.is("Completed") })
	s.oneRecord(t, "slow-cut", "deployed")
	s.uninstall(t, "slow-cut")
}

// interrupted does many actions, and something else when some of them are done.
func (s *tests) interrupted(t *testing.T, prefix string, interrupt func()) {
	t.Helper()
	const many = 40
	offset := testbed.AuditSize(t, s.Spoke())
	var manifests strings.Builder
	names := make([]string, many)
	for i := range many {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		fmt.Fprintf(&manifests, "---\n%s", work(names[i], "spoke1", configMap("Create", names[i], "{}")))
	}
	apply := func(ctx context.Context) error {
		_, err := s.Hub.As(bob).RunInput(ctx, strings.NewReader(manifests.String()), "apply", "-f", "-")
		return err
	}
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		_ = apply(t.Context()) // what finds no webhook is applied again below
	}()
	s.completed(t, "some are done", names[many/10])
	interrupt()
	<-applied
	testbed.Until(t, "all are accepted", testbed.Settle, apply)
	s.completed(t, "each is done", names...)
	list, err := s.Spoke().Kube.CoreV1().ConfigMaps("bob").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix+"-") {
			there++
		}
	}
	if n := s.creations(t, s.Spoke(), offset, prefix+"-"); n != many || there != many {
		t.Errorf("%d requests have made %d objects, want %d of each", n, there, many)
	}
	s.Hub.Kubectl(t, append([]string{"delete", works, "-n", "bob"}, names...)...)
}
