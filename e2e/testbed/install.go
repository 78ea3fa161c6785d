// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/e2e/env"
)

// InstallHub installs the hub with helm, as its documents say.
func (s *Testbed) InstallHub(t *testing.T) {
	// What the pods there refer to goes along, and of no other namespace.
	s.MakeNamespace(t, PodsNamespace)
	err := s.Env.InstallHub(t.Context(), "--set", "pods.namespaces={"+PodsNamespace+"}", "--set-json", "shared.resources="+sharedResources(""))
	if err != nil {
		t.Fatal(err)
	}
	s.restartDaemonSets(t)
}

// restartDaemonSets does what the documents say of DaemonSets that are older than the hub:
// where kubeadm or kind has made the cluster, kube-proxy's and the network's are.
func (s *Testbed) restartDaemonSets(t *testing.T) {
	t.Helper()
	in := []string{"-n", "kube-system"}
	for name := range strings.FieldsSeq(s.Hub.Kubectl(t, append(in, "get", "daemonsets", "-o", "name")...)) {
		s.Hub.Kubectl(t, append(in, "rollout", "restart", name)...)
		s.Hub.Kubectl(t, append(in, "rollout", "status", name, "--timeout=300s")...)
	}
}

// sharedResources are those that may be shared, each with further fields.
func sharedResources(fields string) string {
	return `[{"group":"com.redhat.ecosystem.sample","resource":"requeststates"` + fields +
		`},{"group":"example.com","resource":"gadgets"` + fields + `},{"group":"example.com","resource":"findings"` + fields + `}]`
}

// JoinSpokes joins both spokes to the hub at the same time, and waits for their nodes.
func (s *Testbed) JoinSpokes(t *testing.T) {
	t.Helper()
	// Both owners pass one group of the hub on, and let objects be shared; that of the first lets charts be installed,
	// that of the second lets pods reach for its nodes.
	groups := []string{
		"--set", "kube.groups={" + Platform + "}",
		"--set-json", "shared.allow=" + sharedResources(`,"namespace":"default"`),
		"--set", "shared.definitions={gadgets.example.com}",
	}
	extra := [][]string{
		append([]string{"--set", "helm.charts={" + env.ChartsURL(s.Spoke().Cluster) + "}"}, groups...),
		append([]string{"--set", "pods.hostAccess=true"}, groups...),
	}
	joins := map[string]func(*testing.T){}
	for i, spoke := range s.Spokes {
		joins[spoke.Name] = func(t *testing.T) {
			start := time.Now()
			if err := s.Env.Join(t.Context(), spoke.Cluster, extra[i]...); err != nil {
				t.Fatal(err)
			}
			s.UntilReady(t, spoke.Name, corev1.ConditionTrue, Settle)
			t.Logf("join to a Ready node: %s", time.Since(start).Round(time.Millisecond))
		}
	}
	Parallel(t, joins)
}

// Populate has a pod run on the spoke and two works applied there, which those
// tests look at that disturb what runs. What is there already stays as it is.
func (s *Testbed) Populate(t *testing.T) {
	t.Helper()
	s.Hub.Apply(t, s.LongLivedPod())
	s.Hub.Apply(t, s.WorkManifest("basic", ConfigMap("one", "updated")))
	s.Hub.Apply(t, s.WorkManifest("drift", ConfigMap("drifts", "wanted")))
	UntilPod(t, s.Hub, s.Named(LongLived), "ready", Ready)
	for _, name := range []string{"basic", "drift"} {
		s.UntilWork(t, name, "Applied", "True")
	}
}
