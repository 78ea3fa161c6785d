// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

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
	"github.com/spokelet/spokelet/e2e/testbed"
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
func (s *tests) machineIsDebugged(t *testing.T) {
	c := s.ClientsOf(s.Spokes[1])[0]
	address := s.Spokes[1].Address
	// Its network, processes and files, and what was said.
	script := `read line; ip -o -4 addr | grep -c "` + address + `/"; cat /proc/1/comm; chroot /host cat /etc/hostname; echo "got $line"; sleep 0.2; exit 3`
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		return testbed.Retry(t, "debug of a machine, "+way, func(int) (string, error) {
			got := testbed.Speak(t.Context(), ctl, "a word", debugNode([]string{"-i"}, c.NodeOn(way), script)...)
			name := debugger.FindStringSubmatch(got.Out)
			if name == nil {
				return "", got.Wrong(way, 0)
			}
			defer func() { _, _ = ctl.Run(t.Context(), "delete", "pod", name[1], "--timeout=300s") }()
			if err := debugged(got, way); err != nil {
				return "", err
			}
			logs := testbed.Ask(t.Context(), ctl, "", "logs", name[1])
			return fmt.Sprint(debugger.ReplaceAllString(got.Out, ""), logs.Code, logs.Out), nil
		})
	})
	s.untilNoDebugger(t, s.Spokes[1], c.Node)
}

// machinesNamespace makes the namespace of the debugging pods in the second spoke,
// where pods of its own are compared with those of the hub.
func (s *tests) machinesNamespace(t *testing.T) {
	t.Helper()
	s.Spokes[1].Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+testbed.PodsNamespace+", labels: {spokelet.io/pods: allowed}}}")
	s.Spokes[1].Kubectl(t, "wait", "--for=create", "serviceaccount/default", "-n", testbed.PodsNamespace, "--timeout=300s")
}

// untilNoDebugger waits until the pods of debugging a virtual node are gone from
// its spoke.
func (s *tests) untilNoDebugger(t *testing.T, in *testbed.Site, node string) {
	t.Helper()
	testbed.Until(t, in.Name+": absence of the node's debuggers", testbed.Settle, func(ctx context.Context) error {
		pods, err := in.Kube.CoreV1().Pods(testbed.PodsNamespace).List(ctx, metav1.ListOptions{})
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
func (s *tests) machineIsNotDebugged(t *testing.T) {
	c := s.webSocket()
	asking := testbed.Follow(t, c.Hub, debugNode([]string{"--attach"}, c.Node, "true")...)
	asking.Until(t, "Creating debugging pod")
	name := debugger.FindStringSubmatch(asking.Text())
	if name == nil {
		t.Fatalf("debug said %q", asking.Text())
	}
	testbed.UntilPod(t, s.Hub, name[1], "says why", func(pod *corev1.Pod) error {
		if pod.Status.Reason != "HostAccess" {
			return fmt.Errorf("reason %q", pod.Status.Reason)
		}
		return nil
	})
	if _, err := s.Spoke().Kube.CoreV1().Pods(testbed.PodsNamespace).Get(t.Context(), name[1], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is in the spoke: %v", err)
	}
	// Whoever waits for its container learns that there will be none.
	s.Hub.InPods(t, "delete", "pod", name[1], "--timeout=300s")
	if code := asking.Ended(t, testbed.Patience); code == 0 {
		t.Errorf("debug of a machine that is not to be had succeeds: %q", asking.Text())
	}
	t.Logf("it says %s", asking.Text())
}
