// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *suite) initAndSidecar(t *testing.T) {
	work := "volumeMounts: [{name: work, mountPath: /work}], "
	s.hub.apply(t, pod("staged", "volumes: [{name: work, emptyDir: {}}], initContainers: ["+
		container("prepare", "echo prepared > /work/said", work)+", "+
		container("helper", forever, "restartPolicy: Always, ")+"], ",
		container("main", "cat /work/said; sleep 1d", work)))
	got := untilPod(t, s.hub, "staged", "ready", ready)
	if n := len(got.Status.InitContainerStatuses); n != 2 {
		t.Fatalf("got %d init containers", n)
	}
	if end := got.Status.InitContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 0 {
		t.Errorf("the init container: got %+v", got.Status.InitContainerStatuses[0].State)
	}
	if got.Status.InitContainerStatuses[1].State.Running == nil {
		t.Errorf("the sidecar: got %+v", got.Status.InitContainerStatuses[1].State)
	}
	if out := s.hub.inPods(t, "logs", "staged", "-c", "main"); out != "prepared\n" {
		t.Errorf("the volume holds %q", out)
	}
	s.hub.inPods(t, "delete", "pod", "staged", "--timeout=90s")
	untilNoPod(t, s.spoke(), "staged")
}

// containersEnd leaves its pods, whose logs are asked for later.
func (s *suite) containersEnd(t *testing.T) {
	s.hub.apply(t, pod("fails", "restartPolicy: Never, ", container("main", "for i in 1 2 3; do echo \"last $i\"; done; exit 3", ""))+
		pod("retries", "restartPolicy: OnFailure, volumes: [{name: work, emptyDir: {}}], ",
			container("main", "if [ -e /work/tried ]; then echo again; exit 0; fi; echo first; touch /work/tried; exit 1", "volumeMounts: [{name: work, mountPath: /work}], ")))
	failed := untilPod(t, s.hub, "fails", "failed", inPhase(corev1.PodFailed))
	if end := failed.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("got %+v, want exit code 3", failed.Status.ContainerStatuses[0].State)
	}
	done := untilPod(t, s.hub, "retries", "succeeded", inPhase(corev1.PodSucceeded))
	if got := done.Status.ContainerStatuses[0].RestartCount; got != 1 {
		t.Errorf("restarts: got %d, want 1", got)
	}
}

func (s *suite) jobCompletes(t *testing.T) {
	s.hub.apply(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once, namespace: pods}\nspec: {completions: 3, parallelism: 3, template: {spec: "+
		podSpec("restartPolicy: Never, "+bySelector, container("main", "echo done", ""))+"}}\n")
	s.hub.inPods(t, "wait", "--for=condition=complete", "job/once", "--timeout=90s")
	// A pod that has succeeded lets go of the Job's finalizer, and goes on both sides.
	s.hub.inPods(t, "delete", "job", "once", "--timeout=90s")
	s.untilNone(t, "job-name=once")
}

// untilNone waits until neither side has a pod with a label.
func (s *suite) untilNone(t *testing.T, selector string) {
	t.Helper()
	for _, on := range []*site{s.hub, s.spoke()} {
		until(t, on.Name+": absence of pods with "+selector, settle, func(ctx context.Context) error {
			pods, err := on.kube.CoreV1().Pods(podsNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
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
`, name, replicas, podSpec(bySelector, container("main", script, "")))
}

func (s *suite) deploymentRolls(t *testing.T) {
	rolled := func() { s.hub.inPods(t, "rollout", "status", "deployment/rolls", "--timeout=90s") }
	s.hub.apply(t, deployment("rolls", 2, forever))
	rolled()
	s.hub.inPods(t, "scale", "deployment/rolls", "--replicas=4")
	rolled()
	s.hub.apply(t, deployment("rolls", 3, "echo new; sleep 1d"))
	rolled()
	s.lostPodIsReplaced(t)
	s.hub.inPods(t, "delete", "deployment", "rolls", "--timeout=90s")
	s.untilNone(t, "app=rolls")
}

// lostPodIsReplaced deletes a pod of the Deployment in the spoke.
func (s *suite) lostPodIsReplaced(t *testing.T) {
	t.Helper()
	var lost string
	until(t, "pods of the new template alone", settle, func(ctx context.Context) error {
		pods, err := s.spoke().kube.CoreV1().Pods(podsNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rolls"})
		if err != nil {
			return err
		}
		if n := len(pods.Items); n != 3 {
			return fmt.Errorf("there are %d", n)
		}
		lost = pods.Items[0].Name
		return nil
	})
	s.spoke().inPods(t, "delete", "pod", lost, "--timeout=90s")
	untilPod(t, s.hub, lost, "ended", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != "PodDeletedInCluster" {
			return errors.New("not said to be deleted")
		}
		return nil
	})
	s.hub.inPods(t, "rollout", "status", "deployment/rolls", "--timeout=90s")
	if _, err := s.spoke().ctl.Run(t.Context(), "get", "pod", lost, "-n", podsNamespace); err == nil {
		t.Error("the pod that was deleted in the spoke is there again")
	}
}

// daemonSetWaits makes a DaemonSet whose pods tolerate everything.
func (s *suite) daemonSetWaits(t *testing.T) {
	s.hub.apply(t, `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere, namespace: pods}
spec: {selector: {matchLabels: {app: everywhere}}, template: {metadata: {labels: {app: everywhere}}, spec: `+
		podSpec("tolerations: [{operator: Exists}], ", container("main", forever, ""))+"}}\n")
	until(t, "pod of a DaemonSet that says why it waits", settle, func(ctx context.Context) error {
		pods, err := s.hub.kube.CoreV1().Pods(podsNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=everywhere", FieldSelector: "spec.nodeName=spoke1"})
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
	pods, err := s.spoke().kube.CoreV1().Pods(podsNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=everywhere"})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("the spoke has %d pods of it, %v", len(pods.Items), err)
	}
	s.hub.inPods(t, "delete", "daemonset", "everywhere", "--timeout=90s")
	s.untilNone(t, "app=everywhere")
}

// podIsDeleted deletes one that says goodbye, and one that has no time to.
func (s *suite) podIsDeleted(t *testing.T) {
	polite := container("main", `trap 'echo bye; sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.1; done`, "")
	s.hub.apply(t, podIn(podsNamespace, "polite", onSpoke+"terminationGracePeriodSeconds: 20, ", polite)+pod("rude", "", container("main", forever, "")))
	for _, name := range []string{"polite", "rude"} {
		untilPod(t, s.hub, name, "ready", ready)
	}
	said := follow(t, s.hub.ctl.With("-n", podsNamespace), "logs", "-f", "polite")
	said.until(t, "up\n") // it is followed before it goes
	start := time.Now()
	s.hub.inPods(t, "delete", "pod", "polite", "--timeout=90s")
	took := time.Since(start)
	if _, err := s.spoke().ctl.Run(t.Context(), "get", "pod", "polite", "-n", podsNamespace); err == nil {
		t.Error("the hub's pod went before the spoke's")
	}
	if code := said.ended(t, patience); code != 0 || !strings.Contains(said.text(), "bye") {
		t.Errorf("the pod had no time to say goodbye: code %d, %q", code, said.text())
	}
	t.Logf("a pod that takes half a second to end is deleted in %s", took.Round(time.Millisecond))
	s.hub.inPods(t, "delete", "pod", "rude", "--force", "--grace-period=0")
	untilNoPod(t, s.spoke(), "rude")
}
