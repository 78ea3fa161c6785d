// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) initAndSidecar(t *testing.T) {
	work := "volumeMounts: [{name: work, mountPath: /work}], "
	s.Hub.Apply(t, testbed.Pod("staged", "volumes: [{name: work, emptyDir: {}}], initContainers: ["+
		testbed.Container("prepare", "echo prepared > /work/said", work)+", "+
		testbed.Container("helper", testbed.Forever, "restartPolicy: Always, ")+"], ",
		testbed.Container("main", "cat /work/said; sleep 1d", work)))
	got := testbed.UntilPod(t, s.Hub, "staged", "ready", testbed.Ready)
	if n := len(got.Status.InitContainerStatuses); n != 2 {
		t.Fatalf("got %d init containers", n)
	}
	if end := got.Status.InitContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 {
		t.Errorf("the init container: got %+v", got.Status.InitContainerStatuses[0].State)
	}
	if got.Status.InitContainerStatuses[1].State.Running == nil {
		t.Errorf("the sidecar: got %+v", got.Status.InitContainerStatuses[1].State)
	}
	// A container without a probe is ready before it has done anything.
	testbed.Until(t, "the volume of the init container is read", testbed.Settle, func(context.Context) error {
		if out := s.Hub.InPods(t, "logs", "staged", "-c", "main"); out != "prepared\n" {
			return fmt.Errorf("it holds %q", out)
		}
		return nil
	})
	s.Hub.InPods(t, "delete", "pod", "staged", "--timeout=300s")
	testbed.UntilNoPod(t, s.Spoke(), "staged")
}

func (s *tests) containersEnd(t *testing.T) {
	s.Hub.Apply(t, testbed.Pod("fails", "restartPolicy: Never, ", testbed.Container("main", "exit 3", ""))+
		testbed.Pod("retries", "restartPolicy: OnFailure, volumes: [{name: work, emptyDir: {}}], ",
			testbed.Container("main", "if [ -e /work/tried ]; then echo again; exit 0; fi; echo first; touch /work/tried; exit 1", "volumeMounts: [{name: work, mountPath: /work}], ")))
	failed := testbed.UntilPod(t, s.Hub, "fails", "failed", inPhase(corev1.PodFailed))
	if end := failed.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("got %+v, want exit code 3", failed.Status.ContainerStatuses[0].State)
	}
	done := testbed.UntilPod(t, s.Hub, "retries", "succeeded", inPhase(corev1.PodSucceeded))
	if got := done.Status.ContainerStatuses[0].RestartCount; got != 1 {
		t.Errorf("restarts: got %d, want 1", got)
	}
	s.Hub.InPods(t, "delete", "pod", "fails", "retries", "--timeout=300s")
}

func (s *tests) jobCompletes(t *testing.T) {
	s.Hub.Apply(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once, namespace: pods}\nspec: {completions: 3, parallelism: 3, template: {spec: "+
		testbed.PodSpec("restartPolicy: Never, "+testbed.BySelector, testbed.Container("main", "echo done", ""))+"}}\n")
	s.Hub.InPods(t, "wait", "--for=condition=complete", "job/once", "--timeout=300s")
	// A pod that has succeeded lets go of the Job's finalizer, and goes on both sides.
	s.Hub.InPods(t, "delete", "job", "once", "--timeout=300s")
	s.untilNone(t, "job-name=once")
}

// untilNone waits until neither side has a pod with a label.
func (s *tests) untilNone(t *testing.T, selector string) {
	t.Helper()
	for _, on := range []*testbed.Site{s.Hub, s.Spoke()} {
		testbed.Until(t, on.Name+": absence of pods with "+selector, testbed.Settle, func(ctx context.Context) error {
			pods, err := on.Kube.CoreV1().Pods(testbed.PodsNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return err
			}
			if n := len(pods.Items); n > 0 {
				return fmt.Errorf("%d are there, the first is %s", n, pods.Items[0].Name)
			}
			return nil
		})
	}
}

func deployment(name string, replicas int, script string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: pods}
spec: {replicas: %[2]d, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: %[3]s}}
`, name, replicas, testbed.PodSpec(testbed.BySelector, testbed.Container("main", script, "")))
}

func (s *tests) deploymentRolls(t *testing.T) {
	rolled := func() { s.Hub.InPods(t, "rollout", "status", "deployment/rolls", "--timeout=300s") }
	s.Hub.Apply(t, deployment("rolls", 2, testbed.Forever))
	rolled()
	s.Hub.InPods(t, "scale", "deployment/rolls", "--replicas=4")
	rolled()
	s.Hub.Apply(t, deployment("rolls", 3, "echo new; sleep 1d"))
	rolled()
	s.lostPodIsReplaced(t)
	s.Hub.InPods(t, "delete", "deployment", "rolls", "--timeout=300s")
	s.untilNone(t, "app=rolls")
}

// lostPodIsReplaced deletes a pod of the Deployment in the spoke.
func (s *tests) lostPodIsReplaced(t *testing.T) {
	t.Helper()
	var lost string
	testbed.Until(t, "pods of the new template alone", testbed.Settle, func(ctx context.Context) error {
		pods, err := s.Spoke().Kube.CoreV1().Pods(testbed.PodsNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rolls"})
		if err != nil {
			return err
		}
		if n := len(pods.Items); n != 3 {
			return fmt.Errorf("there are %d", n)
		}
		lost = pods.Items[0].Name
		return nil
	})
	s.Spoke().InPods(t, "delete", "pod", lost, "--timeout=300s")
	testbed.UntilPod(t, s.Hub, lost, "ended", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != "PodDeletedInCluster" {
			return errors.New("not said to be deleted")
		}
		return nil
	})
	s.Hub.InPods(t, "rollout", "status", "deployment/rolls", "--timeout=300s")
	if _, err := s.Spoke().Command.Run(t.Context(), "get", "pod", lost, "-n", testbed.PodsNamespace); err == nil {
		t.Error("the pod that was deleted in the spoke is there again")
	}
}

// daemonSet is one whose pods have further fields.
func daemonSet(name, fields string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[1]s, namespace: pods}
spec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: %[2]s}}
---
`, name, testbed.PodSpec(fields, testbed.Container("main", testbed.Forever, "")))
}

// daemonSetsStayOff expects that the hub has installed the policy by which the controller of
// DaemonSets counts no virtual node.
func (s *tests) daemonSetsStayOff(t *testing.T) {
	manifest := daemonSet("everything", "tolerations: [{operator: Exists}], ")
	testbed.Until(t, "a DaemonSet that tolerates everything is kept off", testbed.Settle, func(ctx context.Context) error {
		out, err := s.Hub.Command.RunInput(ctx, strings.NewReader(manifest), "create", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.template.spec.affinity}")
		if err == nil && (!strings.Contains(out, "spokelet.io/cluster") || !strings.Contains(out, "DoesNotExist")) {
			err = fmt.Errorf("its affinity is %q", out)
		}
		return err
	})
}

// systemIsSelected runs a Deployment that selects nodes as published charts do.
func (s *tests) systemIsSelected(t *testing.T) {
	s.Hub.Apply(t, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: charted, namespace: pods}
spec: {replicas: 1, selector: {matchLabels: {app: charted}}, template: {metadata: {labels: {app: charted}}, spec: %s}}
`, testbed.PodSpec("nodeSelector: {kubernetes.io/os: linux, kubernetes.io/arch: "+runtime.GOARCH+", spokelet.io/cluster: "+s.Spoke().Name+
		"}, tolerations: [{key: spokelet.io/virtual-node, operator: Exists}], ", testbed.Container("main", testbed.Forever, ""))))
	s.Hub.InPods(t, "rollout", "status", "deployment/charted", "--timeout=300s")
	s.Hub.InPods(t, "delete", "deployment", "charted", "--timeout=300s")
	s.untilNone(t, "app=charted")
}

// daemonSetWaits makes a DaemonSet that asks for virtual nodes.
func (s *tests) daemonSetWaits(t *testing.T) {
	s.Hub.Apply(t, daemonSet("everywhere", "tolerations: [{key: spokelet.io/virtual-node, operator: Exists}], "))
	testbed.Until(t, "pod of a DaemonSet that says why it waits", testbed.Settle, func(ctx context.Context) error {
		pods, err := s.Hub.Kube.CoreV1().Pods(testbed.PodsNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=everywhere", FieldSelector: "spec.nodeName=spoke1"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("there are %d", len(pods.Items))
		}
		if status := pods.Items[0].Status; status.Phase != corev1.PodPending || status.Reason != "DaemonSetPod" {
			return fmt.Errorf("it is %s, %q: %s", status.Phase, status.Reason, status.Message)
		}
		return nil
	})
	pods, err := s.Spoke().Kube.CoreV1().Pods(testbed.PodsNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=everywhere"})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("the spoke has %d pods of it, %v", len(pods.Items), err)
	}
	s.Hub.InPods(t, "delete", "daemonset", "everywhere", "--timeout=300s")
	s.untilNone(t, "app=everywhere")
}

// podIsDeleted deletes one that says goodbye, and one that has no time to.
func (s *tests) podIsDeleted(t *testing.T) {
	polite := testbed.Container("main", `trap 'echo bye; sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.1; done`, "")
	s.Hub.Apply(t, testbed.PodIn(testbed.PodsNamespace, "polite", testbed.OnSpoke+"terminationGracePeriodSeconds: 20, ", polite)+testbed.Pod("rude", "", testbed.Container("main", testbed.Forever, "")))
	for _, name := range []string{"polite", "rude"} {
		testbed.UntilPod(t, s.Hub, name, "ready", testbed.Ready)
	}
	said := testbed.Follow(t, s.Hub.Command.With("-n", testbed.PodsNamespace), "logs", "-f", "polite")
	said.Until(t, "up\n") // it is followed before it goes
	start := time.Now()
	s.Hub.InPods(t, "delete", "pod", "polite", "--timeout=300s")
	took := time.Since(start)
	if _, err := s.Spoke().Command.Run(t.Context(), "get", "pod", "polite", "-n", testbed.PodsNamespace); err == nil {
		t.Error("the hub's pod went before the spoke's")
	}
	if code := said.Ended(t, testbed.Patience); code != 0 || !strings.Contains(said.Text(), "bye") {
		t.Errorf("the pod had no time to say goodbye: code %d, %q", code, said.Text())
	}
	t.Logf("a pod that takes half a second to end is deleted in %s", took.Round(time.Millisecond))
	s.Hub.InPods(t, "delete", "pod", "rude", "--force", "--grace-period=0")
	testbed.UntilNoPod(t, s.Spoke(), "rude")
}
