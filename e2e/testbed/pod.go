// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/hack/clusters"
)

const (
	// PodsNamespace is where the tests' pods are, on the hub and in the spoke.
	PodsNamespace = "pods"

	// LongLived is a pod that most steps look at, from its first step to its last.
	LongLived = "verbs"

	// OnSpoke binds a pod to the virtual node of the first spoke.
	OnSpoke = "nodeName: spoke1, "

	// BySelector lets the scheduler do so.
	BySelector = "nodeSelector: {kubernetes.io/hostname: spoke1}, tolerations: [{key: spokelet.io/virtual-node, operator: Exists}], "

	// Forever is a script that ends on nobody's word.
	Forever = "sleep 1d"
)

// Container runs a shell script; the fields are further ones of it, each with its
// comma.
func Container(name, script, fields string) string {
	return fmt.Sprintf(`{name: %s, image: %q, imagePullPolicy: Never, %scommand: [sh, -c, %q]}`, name, clusters.BusyboxImage, fields, script)
}

// PodSpec is what a Deployment's template and a pod have in common. The fields are
// further ones, each with its comma.
func PodSpec(fields string, containers ...string) string {
	const grace = "terminationGracePeriodSeconds: "
	if !strings.Contains(fields, grace) {
		fields += grace + "1, "
	}
	return fmt.Sprintf(`{%scontainers: [%s]}`, fields, strings.Join(containers, ", "))
}

// PodIn is a manifest of a pod whose label app is its name.
func PodIn(namespace, name, fields string, containers ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %[2]s, namespace: %[1]s, labels: {app: %[2]s}}\nspec: %[3]s\n---\n",
		namespace, name, PodSpec(fields, containers...))
}

// Pod is a manifest of one that is bound to the virtual node of the first spoke.
func Pod(name, fields string, containers ...string) string {
	return PodIn(PodsNamespace, name, OnSpoke+fields, containers...)
}

// Pod is one that is bound to the virtual node of the testbed's spoke.
func (s *Testbed) Pod(name string, containers ...string) string {
	return PodIn(PodsNamespace, name, "nodeName: "+s.Spoke().Name+", ", containers...)
}

// LongLivedPod serves HTTP and echoes, on a port each, and has printed some lines. On the first
// spoke it is LongLived.
func (s *Testbed) LongLivedPod() string {
	return s.Pod(s.Named(LongLived),
		Container("main", `mkdir /www; echo "hello from the pod" > /www/index.html; seq 1 400000 > /www/large
			nc -ll -p 8081 -e cat & for i in $(seq 1 20); do echo "line $i"; done; exec httpd -f -p 8080 -h /www`,
			"resources: {requests: {cpu: 10m, memory: 10Mi}, limits: {cpu: 200m, memory: 100Mi}}, "),
		Container("side", `for i in $(seq 1 5); do echo "side $i"; sleep 0.2; done; exec sleep 1d`, ""))
}

// UntilPod waits until a pod of the tests' namespace is as is wanted.
func UntilPod(t *testing.T, on *Site, name, what string, wanted func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	return UntilPodIn(t, on, PodsNamespace, name, what, wanted)
}

// UntilPodIn does so in another namespace.
func UntilPodIn(t *testing.T, on *Site, namespace, name, what string, wanted func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	Until(t, fmt.Sprintf("%s: pod %s: %s", on.Name, name, what), podSettle, func(ctx context.Context) error {
		pod, err := on.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := wanted(pod); err != nil {
			return fmt.Errorf("%w; it is %s, %q: %s", err, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		}
		found = pod
		return nil
	})
	return found
}

// Ready tells how a pod is not ready.
func Ready(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning || !PodReady(pod) {
		return errors.New("not ready")
	}
	return nil
}

// UntilNoPod waits until a pod of the tests' namespace is gone.
func UntilNoPod(t *testing.T, on *Site, name string) {
	t.Helper()
	Until(t, fmt.Sprintf("%s: absence of pod %s", on.Name, name), podSettle, func(ctx context.Context) error {
		pod, err := on.Kube.CoreV1().Pods(PodsNamespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there, %s, deleted %v", pod.Status.Phase, pod.DeletionTimestamp)
	})
}

// GetPod reads a pod of the tests' namespace.
func GetPod(t *testing.T, on *Site, name string) *corev1.Pod {
	t.Helper()
	pod, err := on.Kube.CoreV1().Pods(PodsNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%s: %v", on.Name, err)
	}
	return pod
}

// InPods is kubectl in the tests' namespace.
func (s *Site) InPods(t *testing.T, args ...string) string {
	t.Helper()
	return s.Kubectl(t, append([]string{"-n", PodsNamespace}, args...)...)
}

// MakeNamespace makes one on the hub, and waits until pods may be made in it.
func (s *Testbed) MakeNamespace(t *testing.T, name string) {
	t.Helper()
	s.Hub.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	s.Hub.Kubectl(t, "wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=180s")
}

// PodReady tells whether the Ready condition of a pod is true.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
