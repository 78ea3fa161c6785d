// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// streamsEnd bounds the time in which a client learns of a cut that the hub has
// noticed. A stream that nobody ends lives for hours.
const streamsEnd = 90 * time.Second

// waiting is a manifest of a pod on the spoke that does nothing.
func (s *tests) waiting(name string) string {
	return s.Pod(s.Named(name), testbed.Container("main", testbed.Forever, ""))
}

// cutPods are what a cut tunnel meets: streams to the long-lived pod, and pods that
// are deleted and made while the spoke is away.
type cutPods struct {
	suite   *tests
	before  *corev1.Pod
	streams map[string]*testbed.Following
}

func (s *tests) beforeCut(t *testing.T) *cutPods {
	t.Helper()
	longLived := s.Named(testbed.LongLived)
	s.Hub.Apply(t, s.waiting("leaves")+s.waiting("driven"))
	for _, name := range []string{"leaves", "driven"} {
		testbed.UntilPod(t, s.Hub, s.Named(name), "ready", testbed.Ready)
	}
	c := &cutPods{suite: s, before: testbed.GetPod(t, s.Spoke(), longLived), streams: map[string]*testbed.Following{}}
	for _, client := range s.Clients() {
		running := testbed.Follow(t, client.Hub, "exec", longLived, "-c", "side", "--", "sh", "-c", "echo begun; sleep 1d")
		running.Until(t, "begun")
		ports, local := testbed.Forward(t, client.Hub, longLived, "8080")
		if _, err := testbed.Fetch(t.Context(), "http://"+local["8080"]+"/"); err != nil {
			t.Error(err)
		}
		logs := testbed.Follow(t, client.Hub, "logs", "-f", longLived, "-c", "main")
		logs.Until(t, "line 20")
		c.streams["exec, "+client.Name], c.streams["port-forward, "+client.Name], c.streams["logs, "+client.Name] = running, ports, logs
	}
	for name, ctl := range s.proxied(t, longLived) {
		running := testbed.Follow(t, ctl, "exec", longLived, "-c", "side", "--", "sh", "-c", "echo begun; sleep 1d")
		running.Until(t, "begun")
		c.streams["exec through the proxy, "+name] = running
	}
	return c
}

// runRights let alice run commands in the pods of a spoke.
const runRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: run, namespace: ` + testbed.PodsNamespace + `}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: run, namespace: ` + testbed.PodsNamespace + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: run}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "hub:` + testbed.Platform + `"}]
`

// proxied are the clients by name, each of which asks the spoke's API server through
// clusters/proxy, and may run commands in a pod.
func (s *tests) proxied(t *testing.T, pod string) map[string]env.Command {
	t.Helper()
	s.Spoke().Apply(t, runRights)
	server := strings.TrimSpace(s.Hub.Kubectl(t, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"))
	server += "/apis/live.spokelet.io/v1alpha1/clusters/" + s.Spoke().Name + "/proxy"
	clients := map[string]env.Command{}
	for _, client := range s.Clients() {
		ctl := client.Hub.With("--as", testbed.Alice, "--as-group", testbed.Platform, "--server", server)
		testbed.Until(t, "a command through the proxy by "+client.Name, testbed.Settle, func(ctx context.Context) error {
			_, err := ctl.Run(ctx, "exec", pod, "-c", "side", "--", "true")
			return err
		})
		clients[client.Name] = ctl
	}
	return clients
}

// during looks at the hub while the spoke is away.
func (c *cutPods) during(t *testing.T) {
	t.Helper()
	s := c.suite
	start := time.Now()
	for name, stream := range c.streams {
		code := stream.Ended(t, streamsEnd)
		t.Logf("%s ended with code %d within %s after the node was NotReady", name, code, time.Since(start).Round(time.Millisecond))
		// The API server itself ends a log in peace, whatever ended it; the log's
		// last line says so.
		if strings.HasPrefix(name, "logs") {
			if text := stream.Text(); !strings.Contains(text, "spokelet: the log ends here: cluster ") {
				t.Errorf("%s: the log does not say that it was cut: %q", name, text)
			}
			continue
		}
		if code == 0 {
			t.Errorf("%s: the cut looks like a success: %q", name, stream.Text())
		}
	}
	testbed.Refused(t, "exec in a cluster that is away", s.Hub.Command, "", []string{"exec", "-n", testbed.PodsNamespace, c.before.Name, "-c", "main", "--", "true"}, s.Spoke().Name)
	if phase := testbed.GetPod(t, s.Hub, c.before.Name).Status.Phase; phase != corev1.PodRunning {
		t.Errorf("a pod whose cluster is away is %s", phase)
	}
	s.Hub.InPods(t, "delete", "pod", s.Named("leaves"), "--wait=false")
	s.Hub.InPods(t, "delete", "pod", s.Named("driven"), "--force", "--grace-period=0")
	s.Hub.Apply(t, s.waiting("comes"))
	for _, name := range []string{"leaves", "driven"} {
		if pod := testbed.GetPod(t, s.Spoke(), s.Named(name)); pod.DeletionTimestamp != nil {
			t.Errorf("%s: who told the spoke?", name)
		}
	}
}

// after expects what was decided while the spoke was away.
func (c *cutPods) after(t *testing.T) {
	t.Helper()
	s := c.suite
	for _, name := range []string{"leaves", "driven"} {
		testbed.UntilNoPod(t, s.Spoke(), s.Named(name))
	}
	testbed.UntilNoPod(t, s.Hub, s.Named("leaves"))
	testbed.UntilPod(t, s.Hub, s.Named("comes"), "ready", testbed.Ready)
	s.podStayed(t, c.before)
	s.Hub.InPods(t, "delete", "pod", s.Named("comes"), "--timeout=300s")
}

// podStayed expects that a pod of the spoke is the one that it was, with the same
// containers, and that the hub knows it.
func (s *tests) podStayed(t *testing.T, before *corev1.Pod) {
	t.Helper()
	hub := testbed.UntilPod(t, s.Hub, before.Name, "ready", testbed.Ready)
	now := testbed.GetPod(t, s.Spoke(), before.Name)
	if now.UID != before.UID {
		t.Errorf("pod %s was replaced", before.Name)
	}
	if diff := cmp.Diff(before.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
		t.Errorf("containers (-before +now):\n%s", diff)
	}
	if diff := cmp.Diff(now.Status.ContainerStatuses, hub.Status.ContainerStatuses); diff != "" {
		t.Errorf("containers (-spoke +hub):\n%s", diff)
	}
	for _, client := range s.Clients() {
		client.Same(t, testbed.Verb{Args: []string{"exec", before.Name, "-c", "main", "--", "sh", "-c", "exit 5"}, Code: 5})
	}
}

// podsWhile runs something that takes a side away for a moment, after one pod is
// deleted and one is made.
func (s *tests) podsWhile(t *testing.T, what func()) {
	t.Helper()
	begins, ends := s.Named("begins"), s.Named("ends")
	before := testbed.GetPod(t, s.Spoke(), s.Named(testbed.LongLived))
	s.Hub.Apply(t, s.waiting("ends"))
	testbed.UntilPod(t, s.Hub, ends, "ready", testbed.Ready)
	mark := testbed.AuditSize(t, s.Spoke())
	what()
	s.Hub.Apply(t, s.waiting("begins"))
	s.Hub.InPods(t, "delete", "pod", ends, "--wait=false")
	testbed.UntilNoPod(t, s.Spoke(), ends)
	testbed.UntilNoPod(t, s.Hub, ends)
	testbed.UntilPod(t, s.Hub, begins, "ready", testbed.Ready)
	s.podStayed(t, before)
	if got := testbed.CountOursOf(t, s.Spoke(), mark, "pods", begins, "create"); got != 1 {
		t.Errorf("one pod was made %d times", got)
	}
	if got := testbed.CountOursOf(t, s.Spoke(), mark, "pods", before.Name, "create", "delete", "patch", "update"); got != 0 {
		t.Errorf("%s was written %d times although nothing changed", before.Name, got)
	}
	s.Hub.InPods(t, "delete", "pod", begins, "--timeout=300s")
}

func (s *tests) agentRestartIsSurvived(t *testing.T) {
	testbed.ReportRaces(t, s.Spoke().Kubectl(t, "logs", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--tail=-1")) // its log goes
	s.podsWhile(t, func() {
		s.Spoke().Kubectl(t, "delete", "pod", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--grace-period=0", "--force")
	})
	s.untilExecutor(t, 1, "")
}
