// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
)

// agentPods selects the pods of the agent's chart.
const agentPods = "app.kubernetes.io/name=spokelet-agent"

func (s *suite) hubCannotDial(t *testing.T) {
	target, err := url.Parse(s.spoke().rest.Host)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(from *site, host string, port string) error {
		_, err := from.Exec(t.Context(), "timeout", "5", "bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port)
		return err
	}
	if err := dial(s.hub, target.Hostname(), target.Port()); err == nil {
		t.Error("the hub opened a connection to the spoke's API server")
	}
	back, err := url.Parse(s.hub.rest.Host)
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(s.spoke(), back.Hostname(), back.Port()); err != nil {
		t.Errorf("the other direction must be open, or the step above proves nothing: %v", err)
	}
}

func (s *suite) installHub(t *testing.T) {
	// What the pods there refer to goes along, and of no other namespace.
	s.makeNamespace(t, podsNamespace)
	if err := s.env.InstallHub(t.Context(), "--set", "pods.namespaces={"+podsNamespace+"}"); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) joinSpokes(t *testing.T) {
	// Both owners pass one group of the hub on; that of the second lets pods reach for
	// its nodes.
	groups := []string{"--set", "kube.groups={" + platform + "}"}
	extra := [][]string{groups, append([]string{"--set", "pods.hostAccess=true"}, groups...)}
	for i, spoke := range s.spokes {
		start := time.Now()
		if err := s.env.Join(t.Context(), spoke.Cluster, extra[i]...); err != nil {
			t.Fatal(err)
		}
		s.untilReady(t, spoke.Name, corev1.ConditionTrue, settle)
		t.Logf("%s: join to a Ready node: %s", spoke.Name, time.Since(start).Round(time.Millisecond))
	}
}

func (s *suite) chartTests(t *testing.T) {
	for name, run := range map[string]func() (string, error){
		"hub":   func() (string, error) { return s.helmTest(t, s.hub, "spokelet-hub", env.HubNamespace) },
		"agent": func() (string, error) { return s.helmTest(t, s.spoke(), "spokelet-agent", env.AgentNamespace) },
	} {
		if out, err := run(); err != nil || !strings.Contains(out, "Succeeded") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func (s *suite) helmTest(t *testing.T, on *site, release, namespace string) (string, error) {
	t.Helper()
	return s.env.Helm(on.Cluster).Run(t.Context(), "test", release, "--namespace", namespace, "--timeout", "2m")
}

// untilReady waits for the Ready condition of a virtual node and returns its
// reason.
func (s *suite) untilReady(t *testing.T, name string, want corev1.ConditionStatus, timeout time.Duration) string {
	t.Helper()
	var reason string
	until(t, fmt.Sprintf("node %s Ready=%s", name, want), timeout, func(ctx context.Context) error {
		node, err := s.hub.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := nodeCondition(node, corev1.NodeReady)
		reason = ready.Reason
		if ready.Status != want {
			return fmt.Errorf("is %q: %s: %s", ready.Status, ready.Reason, ready.Message)
		}
		return nil
	})
	return reason
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func (s *suite) acceptanceIsLive(t *testing.T) {
	const name = "spoke2"
	s.hub.kubectl(t, "patch", "managedcluster", name, "--type=merge", "-p", `{"spec":{"hubAcceptsClient":false}}`)
	start := time.Now()
	until(t, "session of a cluster that is not accepted", 30*time.Second, func(ctx context.Context) error {
		out, err := s.hub.ctl.Run(ctx, "get", "--raw", "/apis/live.spokelet.io/v1alpha1/clusters/"+name+"/proxy/version")
		if err == nil {
			return fmt.Errorf("still answers: %s", out)
		}
		return nil
	})
	t.Logf("cut %s after hubAcceptsClient=false", time.Since(start).Round(time.Millisecond))
	if _, err := s.hub.kube.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace of a cluster that is not accepted stays: %v", err)
	}
	refused(t, "only who may accept may accept", s.hub.as("mallory", "system:authenticated"), "",
		[]string{"patch", "managedcluster", name, "--type=merge", "-p", `{"spec":{"hubAcceptsClient":true}}`}, "orbidden")
	s.hub.kubectl(t, "patch", "managedcluster", name, "--type=merge", "-p", `{"spec":{"hubAcceptsClient":true}}`)
	s.untilReady(t, name, corev1.ConditionTrue, settle)
}

func (s *suite) agentUninstalls(t *testing.T) {
	spoke := s.spoke()
	s.hub.apply(t, configMapWork("left", "left-behind"))
	s.untilWork(t, "left", "Applied", "True")
	s.startLeft(t, spoke)
	if _, err := s.env.Helm(spoke.Cluster).Run(t.Context(), "uninstall", "spokelet-agent", "--namespace", env.AgentNamespace, "--wait", "--timeout", "3m"); err != nil {
		t.Fatal(err)
	}
	kept, err := spoke.kube.CoreV1().ConfigMaps("default").Get(t.Context(), "left-behind", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("what was applied stays: %v", err)
	}
	if len(kept.OwnerReferences) > 0 {
		t.Errorf("what stays belongs to nobody, got %v", kept.OwnerReferences)
	}
	if out := spoke.kubectl(t, "get", "crd", "-o", "name"); strings.Contains(out, "appliedworks") {
		t.Errorf("the anchors' definition stayed:\n%s", out)
	}
	if out := spoke.kubectl(t, "get", "clusterroles,clusterrolebindings", "-o", "name"); strings.Contains(out, "spokelet") {
		t.Errorf("rights stayed:\n%s", out)
	}
	s.untilReady(t, spoke.Name, corev1.ConditionFalse, settle)
	s.noneLeft(t, spoke)
}

func (s *suite) detach(t *testing.T) {
	name := s.spoke().Name
	s.hub.kubectl(t, "spokelet", "detach", name, "--force")
	until(t, "traces of a detached cluster", settle, func(ctx context.Context) error {
		for _, what := range []string{"managedcluster/" + name, "node/" + name, "namespace/" + name} {
			out, err := s.hub.ctl.Run(ctx, "get", what, "--ignore-not-found", "-o", "name")
			if err != nil {
				return err
			}
			if out != "" {
				return fmt.Errorf("%s is still there", what)
			}
		}
		return nil
	})
}

func (s *suite) noRace(t *testing.T) {
	logs := s.hub.kubectl(t, "logs", "-n", env.HubNamespace, "deployment/spokelet-hub", "--tail=-1")
	logs += s.spokes[1].kubectl(t, "logs", "-n", env.AgentNamespace, "deployment/spokelet-agent", "--tail=-1")
	reportRaces(t, logs)
	out := s.hub.kubectl(t, "get", "pods", "-n", env.HubNamespace, "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if strings.Trim(out, "0 ") != "" {
		t.Errorf("the hub's container restarted: %s", out)
	}
}

// reportRaces fails the test if logs tell of a race or a panic.
func reportRaces(t *testing.T, logs string) {
	t.Helper()
	for _, word := range []string{"DATA RACE", "panic:", "Observed a panic"} {
		if _, after, found := strings.Cut(logs, word); found {
			t.Errorf("%s: %.2000s", word, after)
		}
	}
}
