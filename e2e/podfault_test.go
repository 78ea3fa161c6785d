// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/e2e/env"
)

// streamsEnd bounds the time in which a client learns of a cut that the hub has
// noticed. A stream that nobody ends lives for hours.
const streamsEnd = settle

// cutPods are what a cut tunnel meets: streams to the long-lived pod, and pods that
// are deleted and made while the spoke is away.
type cutPods struct {
	suite   *suite
	before  *corev1.Pod
	streams map[string]*following
}

func (s *suite) beforeCut(t *testing.T) *cutPods {
	t.Helper()
	s.hub.apply(t, pod("leaves", "", container("main", forever, ""))+pod("driven", "", container("main", forever, "")))
	for _, name := range []string{"leaves", "driven"} {
		untilPod(t, s.hub, name, "ready", ready)
	}
	c := &cutPods{suite: s, before: getPod(t, s.spoke(), longLived), streams: map[string]*following{}}
	for _, client := range s.clients() {
		running := follow(t, client.hub, "exec", longLived, "-c", "side", "--", "sh", "-c", "echo begun; sleep 1d")
		running.until(t, "begun")
		ports, local := forward(t, client.hub, longLived, "8080")
		if _, err := fetch(t.Context(), "http://"+local["8080"]+"/"); err != nil {
			t.Error(err)
		}
		logs := follow(t, client.hub, "logs", "-f", longLived, "-c", "main")
		logs.until(t, "line 20")
		c.streams["exec, "+client.name], c.streams["port-forward, "+client.name], c.streams["logs, "+client.name] = running, ports, logs
	}
	return c
}

// during looks at the hub while the spoke is away.
func (c *cutPods) during(t *testing.T) {
	t.Helper()
	s := c.suite
	start := time.Now()
	for name, stream := range c.streams {
		code := stream.ended(t, streamsEnd)
		t.Logf("%s ended with code %d within %s after the node was NotReady", name, code, time.Since(start).Round(time.Millisecond))
		// The API server itself ends a log in peace, whatever ended it; the log's
		// last line says so.
		if strings.HasPrefix(name, "logs") {
			if text := stream.text(); !strings.Contains(text, "spokelet: the log ends here: cluster ") {
				t.Errorf("%s: the log does not say that it was cut: %q", name, text)
			}
			continue
		}
		if code == 0 {
			t.Errorf("%s: the cut looks like a success: %q", name, stream.text())
		}
	}
	refused(t, "exec in a cluster that is away", s.hub.ctl, "", []string{"exec", "-n", podsNamespace, longLived, "-c", "main", "--", "true"}, s.spoke().Name)
	if phase := getPod(t, s.hub, longLived).Status.Phase; phase != corev1.PodRunning {
		t.Errorf("a pod whose cluster is away is %s", phase)
	}
	s.hub.inPods(t, "delete", "pod", "leaves", "--wait=false")
	s.hub.inPods(t, "delete", "pod", "driven", "--force", "--grace-period=0")
	s.hub.apply(t, pod("comes", "", container("main", forever, "")))
	for _, name := range []string{"leaves", "driven"} {
		if pod := getPod(t, s.spoke(), name); pod.DeletionTimestamp != nil {
			t.Errorf("%s: who told the spoke?", name)
		}
	}
}

// after expects what was decided while the spoke was away.
func (c *cutPods) after(t *testing.T) {
	t.Helper()
	s := c.suite
	for _, name := range []string{"leaves", "driven"} {
		untilNoPod(t, s.spoke(), name)
	}
	untilNoPod(t, s.hub, "leaves")
	untilPod(t, s.hub, "comes", "ready", ready)
	s.podStayed(t, c.before)
	s.hub.inPods(t, "delete", "pod", "comes", "--timeout=90s")
}

// podStayed expects that a pod of the spoke is the one that it was, with the same
// containers, and that the hub knows it.
func (s *suite) podStayed(t *testing.T, before *corev1.Pod) {
	t.Helper()
	hub := untilPod(t, s.hub, before.Name, "ready", ready)
	now := getPod(t, s.spoke(), before.Name)
	if now.UID != before.UID {
		t.Errorf("pod %s was replaced", before.Name)
	}
	if diff := cmp.Diff(before.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
		t.Errorf("containers (-before +now):\n%s", diff)
	}
	if diff := cmp.Diff(now.Status.ContainerStatuses, hub.Status.ContainerStatuses); diff != "" {
		t.Errorf("containers (-spoke +hub):\n%s", diff)
	}
	for _, client := range s.clients() {
		if got := client.same(t, answer.plain, "", "exec", before.Name, "-c", "main", "--", "sh", "-c", "exit 5"); got.Code != 5 {
			t.Errorf("%s: exec answers %+v", client.name, got)
		}
	}
}

// podsWhile runs something that takes a side away for a moment, after one pod is
// deleted and one is made.
func (s *suite) podsWhile(t *testing.T, what func()) {
	t.Helper()
	before := getPod(t, s.spoke(), longLived)
	s.hub.apply(t, pod("ends", "", container("main", forever, "")))
	untilPod(t, s.hub, "ends", "ready", ready)
	mark := auditSize(t, s.spoke())
	what()
	s.hub.apply(t, pod("begins", "", container("main", forever, "")))
	s.hub.inPods(t, "delete", "pod", "ends", "--wait=false")
	untilNoPod(t, s.spoke(), "ends")
	untilNoPod(t, s.hub, "ends")
	untilPod(t, s.hub, "begins", "ready", ready)
	s.podStayed(t, before)
	if got := countOursOf(t, s.spoke(), mark, "pods", "begins", "create"); got != 1 {
		t.Errorf("one pod was made %d times", got)
	}
	if got := countOursOf(t, s.spoke(), mark, "pods", longLived, "create", "delete", "patch", "update"); got != 0 {
		t.Errorf("%s was written %d times although nothing changed", longLived, got)
	}
	s.hub.inPods(t, "delete", "pod", "begins", "--timeout=90s")
}

func (s *suite) agentRestartIsSurvived(t *testing.T) {
	s.podsWhile(t, func() {
		s.spoke().kubectl(t, "delete", "pod", "-n", env.AgentNamespace, "-l", agentPods, "--grace-period=0", "--force")
	})
	s.untilExecutor(t, 1, "")
}

// podsLeave deletes the pods' namespace on the hub.
func (s *suite) podsLeave(t *testing.T) {
	s.hub.kubectl(t, "delete", "namespace", podsNamespace, "--timeout=90s")
	for _, kind := range []string{"pods", "configmaps", "secrets"} {
		out := s.spoke().kubectl(t, "get", kind, "-A", "-l", "spokelet.io/hub", "-o", "name")
		if out != "" {
			t.Errorf("left in the spoke:\n%s", out)
		}
	}
}

// leftNamespace is that of the pods that run while a cluster leaves.
const leftNamespace = "left"

// startLeft has a pod run in a cluster that is about to leave.
func (s *suite) startLeft(t *testing.T, on *site) {
	t.Helper()
	s.hub.apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", leftNamespace))
	s.hub.kubectl(t, "wait", "--for=create", "serviceaccount/default", "-n", leftNamespace, "--timeout=90s")
	s.hub.apply(t, podIn(leftNamespace, "on-"+on.Name, "nodeName: "+on.Name+", ", container("main", forever, "")))
	untilPodIn(t, s.hub, leftNamespace, "on-"+on.Name, "ready", ready)
}

// noneLeft waits until no pod of the hub runs in a cluster.
func (s *suite) noneLeft(t *testing.T, in *site) {
	t.Helper()
	until(t, in.Name+": absence of the hub's pods", settle, func(ctx context.Context) error {
		out, err := in.ctl.Run(ctx, "get", "pods", "-A", "-l", "spokelet.io/hub", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("left: %s", out)
		}
		return err
	})
}

// detachEndsPods has a cluster that is connected leave in order.
func (s *suite) detachEndsPods(t *testing.T) {
	spoke := s.spokes[1]
	s.hub.kubectl(t, "wait", "--for=condition=Ready", "node/"+spoke.Name, "--timeout=90s")
	s.startLeft(t, spoke)
	s.hub.kubectl(t, "spokelet", "detach", spoke.Name, "--timeout=90s")
	if out := spoke.kubectl(t, "get", "pods", "-A", "-l", "spokelet.io/hub", "-o", "name"); out != "" {
		t.Errorf("left running: %s", out)
	}
}
