// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// debugger is the pod that "kubectl debug node/NAME" says it makes.
var debugger = regexp.MustCompile(`Creating debugging pod (\S+) with container debugger on node \S+\n`)

// debugNode asks for a pod that has the machine of a node, which runs a script.
func debugNode(flags []string, node, script string) []string {
	args := append([]string{"debug", "node/" + node, "--image=" + clusters.BusyboxImage, "--image-pull-policy=Never"}, flags...)
	return append(args, "--", "sh", "-c", script)
}

// machineIsDebugged does so where the owner lets it: what it finds is the machine
// that a node of the spoke is.
func (s *suite) machineIsDebugged(t *testing.T, c client) {
	address := s.spokes[1].Address
	// Its network, processes and files, and what was said.
	script := `read line; ip -o -4 addr | grep -c "` + address + `/"; cat /proc/1/comm; chroot /host cat /etc/hostname; echo "got $line"; sleep 0.2; exit 3`
	c.both(t, func(ctl env.Command, way string) (string, error) {
		got := speak(t.Context(), ctl, "a word", debugNode([]string{"-i"}, c.nodeOn(way), script)...)
		name := debugger.FindStringSubmatch(got.Out)
		if name == nil || !strings.Contains(got.Out, "got a word\n") {
			return "", fmt.Errorf("debug answers %d, %q, %q", got.Code, got.Out, got.Err)
		}
		defer func() { _, _ = ctl.Run(t.Context(), "delete", "pod", name[1], "--timeout=90s") }()
		logs := ask(t.Context(), ctl, "", "logs", name[1])
		return fmt.Sprint(got.Code, debugger.ReplaceAllString(got.Out, ""), logs.Code, logs.Out), nil
	})
	s.untilNoDebugger(t, s.spokes[1], c.node)
}

// machinesNamespace makes the namespace of the debugging pods in the second spoke,
// where pods of its own are compared with those of the hub.
func (s *suite) machinesNamespace(t *testing.T) {
	t.Helper()
	s.spokes[1].apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+podsNamespace+", labels: {spokelet.io/pods: allowed}}}")
	s.spokes[1].kubectl(t, "wait", "--for=create", "serviceaccount/default", "-n", podsNamespace, "--timeout=90s")
}

// untilNoDebugger waits until the pods of debugging a virtual node are gone from
// its spoke.
func (s *suite) untilNoDebugger(t *testing.T, in *site, node string) {
	t.Helper()
	until(t, in.Name+": absence of the node's debuggers", settle, func(ctx context.Context) error {
		pods, err := in.kube.CoreV1().Pods(podsNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if name := pods.Items[i].Name; strings.HasPrefix(name, "node-debugger-"+node+"-") {
				return fmt.Errorf("%s is there", name)
			}
		}
		return nil
	})
}

// machineIsNotDebugged asks for it where the owner does not let it: the pod says
// why, in its status and to who waits for it.
func (s *suite) machineIsNotDebugged(t *testing.T, c client) {
	asking := follow(t, c.hub, debugNode([]string{"--attach"}, c.node, "true")...)
	asking.until(t, "Creating debugging pod")
	name := debugger.FindStringSubmatch(asking.text())
	if name == nil {
		t.Fatalf("debug said %q", asking.text())
	}
	untilPod(t, s.hub, name[1], "says why", func(pod *corev1.Pod) error {
		if pod.Status.Reason != "HostAccess" {
			return fmt.Errorf("reason %q", pod.Status.Reason)
		}
		return nil
	})
	if _, err := s.spoke().kube.CoreV1().Pods(podsNamespace).Get(t.Context(), name[1], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is in the spoke: %v", err)
	}
	// Whoever waits for its container learns that there will be none.
	s.hub.inPods(t, "delete", "pod", name[1], "--timeout=90s")
	if code := asking.ended(t, patience); code == 0 {
		t.Errorf("debug of a machine that is not to be had succeeds: %q", asking.text())
	}
	t.Logf("%s: %s", c.name, asking.text())
}
