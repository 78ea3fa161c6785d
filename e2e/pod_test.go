// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/hack/clusters"
)

const (
	// podsNamespace is where the tests' pods are, on the hub and in the spoke.
	podsNamespace = "pods"

	// longLived is a pod that most steps look at, from its first step to its last.
	longLived = "verbs"

	// onSpoke binds a pod to the virtual node of the first spoke.
	onSpoke = "nodeName: spoke1, "

	// bySelector lets the scheduler do so.
	bySelector = "nodeSelector: {kubernetes.io/hostname: spoke1}, tolerations: [{key: spokelet.io/virtual-node, operator: Exists}], "

	// forever is a script that ends on nobody's word.
	forever = "sleep 1d"
)

// container runs a shell script; the fields are further ones of it, each with its
// comma.
func container(name, script, fields string) string {
	return fmt.Sprintf(`{name: %s, image: %q, imagePullPolicy: Never, %scommand: [sh, -c, %q]}`, name, clusters.BusyboxImage, fields, script)
}

// podSpec is what a Deployment's template and a pod have in common. The fields are
// further ones, each with its comma.
func podSpec(fields string, containers ...string) string {
	const grace = "terminationGracePeriodSeconds: "
	if !strings.Contains(fields, grace) {
		fields += grace + "1, "
	}
	return fmt.Sprintf(`{%scontainers: [%s]}`, fields, strings.Join(containers, ", "))
}

func podIn(namespace, name, fields string, containers ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %[2]s, namespace: %[1]s, labels: {app: %[2]s}}\nspec: %[3]s\n---\n",
		namespace, name, podSpec(fields, containers...))
}

// pod is a manifest of one that is bound to the virtual node of the first spoke.
func pod(name, fields string, containers ...string) string {
	return podIn(podsNamespace, name, onSpoke+fields, containers...)
}

// longLivedPod serves HTTP and echoes, on a port each, and has printed some lines.
func longLivedPod() string {
	return pod(longLived, "",
		container("main", `mkdir /www; echo "hello from the pod" > /www/index.html; seq 1 400000 > /www/large
			nc -ll -p 8081 -e cat & for i in $(seq 1 20); do echo "line $i"; done; exec httpd -f -p 8080 -h /www`,
			"resources: {requests: {cpu: 10m, memory: 10Mi}, limits: {cpu: 200m, memory: 100Mi}}, "),
		container("side", `for i in $(seq 1 5); do echo "side $i"; sleep 0.2; done; exec sleep 1d`, ""))
}

// untilPod waits until a pod of the tests' namespace is as is wanted.
func untilPod(t *testing.T, on *site, name, what string, wanted func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	return untilPodIn(t, on, podsNamespace, name, what, wanted)
}

func untilPodIn(t *testing.T, on *site, namespace, name, what string, wanted func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	until(t, fmt.Sprintf("%s: pod %s: %s", on.Name, name, what), settle, func(ctx context.Context) error {
		pod, err := on.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
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

func ready(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning || !podReady(pod) {
		return errors.New("not ready")
	}
	return nil
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if pod.Status.Phase != phase {
			return fmt.Errorf("not %s", phase)
		}
		return nil
	}
}

func untilNoPod(t *testing.T, on *site, name string) {
	t.Helper()
	until(t, fmt.Sprintf("%s: absence of pod %s", on.Name, name), settle, func(ctx context.Context) error {
		pod, err := on.kube.CoreV1().Pods(podsNamespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there, %s, deleted %v", pod.Status.Phase, pod.DeletionTimestamp)
	})
}

func getPod(t *testing.T, on *site, name string) *corev1.Pod {
	t.Helper()
	pod, err := on.kube.CoreV1().Pods(podsNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%s: %v", on.Name, err)
	}
	return pod
}

// inPods is kubectl in the tests' namespace.
func (s *site) inPods(t *testing.T, args ...string) string {
	t.Helper()
	return s.kubectl(t, append([]string{"-n", podsNamespace}, args...)...)
}

// parallel runs tests that touch nothing of each other.
func parallel(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	// The group is over when the last of them is.
	t.Run("together", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}

// podsRun makes pods on the hub that are bound to a virtual node.
func (s *suite) podsRun(t *testing.T) {
	s.hub.apply(t, longLivedPod())
	untilPod(t, s.hub, longLived, "ready", ready)
	parallel(t, map[string]func(*testing.T){
		"what the spoke says of a pod is what the hub says": s.podIsMirrored,
		"ConfigMaps and Secrets follow live":                s.referencesFollow,
		"a missing ConfigMap is named, and healed":          s.missingReferenceHeals,
		"a token is the spoke's":                            s.tokenIsTheSpokes,
		"init containers and sidecars":                      s.initAndSidecar,
		"containers that end":                               s.containersEnd,
		"a Job completes":                                   s.jobCompletes,
		"a Deployment scales, rolls and is replaced":        s.deploymentRolls,
		"a container is resized in place":                   s.containerIsResized,
		"a DaemonSet's pod is not taken":                    s.daemonSetWaits,
		"a pod is deleted with its grace, or without":       s.podIsDeleted,
	})
}

// makeNamespace makes one on the hub, and waits until pods may be made in it.
func (s *suite) makeNamespace(t *testing.T, name string) {
	t.Helper()
	s.hub.kubectl(t, "create", "namespace", name)
	s.hub.kubectl(t, "wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=90s")
}

func (s *suite) podIsMirrored(t *testing.T) {
	var hub, spoke *corev1.Pod
	// What the kubelet says last is on its way when both say that the pod is ready.
	until(t, "the same on both sides", settle, func(context.Context) error {
		hub, spoke = getPod(t, s.hub, longLived), getPod(t, s.spoke(), longLived)
		return sameStatus(spoke, hub)
	})
	if got := spoke.Labels["spokelet.io/hub-pod-uid"]; types.UID(got) != hub.UID {
		t.Errorf("mark in the spoke: got %q, want %q", got, hub.UID)
	}
	until(t, "events of the spoke's kubelet on the hub", settle, func(ctx context.Context) error {
		events, err := s.hub.kube.CoreV1().Events(podsNamespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(hub.UID)})
		if err != nil {
			return err
		}
		seen := map[string]string{}
		for _, e := range events.Items {
			seen[e.Reason+" "+e.InvolvedObject.FieldPath] = e.Source.Component
		}
		if seen["Started spec.containers{main}"] != "kubelet" {
			return fmt.Errorf("got %v", seen)
		}
		return nil
	})
	if out := s.hub.inPods(t, "describe", "pod", longLived); !strings.Contains(out, "Started") || !strings.Contains(out, hub.Status.PodIP) {
		t.Errorf("describe: %s", out)
	}
}

// sameStatus tells how what the hub says of a pod differs from what its spoke says.
func sameStatus(spoke, hub *corev1.Pod) error {
	if hub.Status.PodIP == "" || hub.Status.PodIP != spoke.Status.PodIP {
		return fmt.Errorf("address: got %q, want %q", hub.Status.PodIP, spoke.Status.PodIP)
	}
	want := podConditions(spoke)
	want["spokelet.io/InCluster"] = corev1.ConditionTrue
	diff := cmp.Diff(spoke.Status.ContainerStatuses, hub.Status.ContainerStatuses) + cmp.Diff(want, podConditions(hub))
	if diff != "" {
		return fmt.Errorf("(-spoke +hub):\n%s", diff)
	}
	return nil
}

func podConditions(pod *corev1.Pod) map[corev1.PodConditionType]corev1.ConditionStatus {
	conditions := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range pod.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	return conditions
}

func (s *suite) tokenIsTheSpokes(t *testing.T) {
	token := s.hub.inPods(t, "exec", longLived, "-c", "main", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	review := func(on *site) authenticationv1.TokenReviewStatus {
		got, err := on.kube.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	want := "system:serviceaccount:" + podsNamespace + ":default"
	if got := review(s.spoke()); !got.Authenticated || got.User.Username != want {
		t.Errorf("the spoke knows the token as %+v, want %s", got, want)
	}
	if got := review(s.hub); got.Authenticated {
		t.Errorf("the hub knows the token as %+v", got.User)
	}
}

func (s *suite) containerIsResized(t *testing.T) {
	s.hub.apply(t, pod("resized", "", container("main", forever, "resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}, ")))
	before := untilPod(t, s.hub, "resized", "ready", ready)
	s.hub.inPods(t, "patch", "pod", "resized", "--subresource=resize", "-p", `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"150m"}}}]}}`)
	after := untilPod(t, s.hub, "resized", "new limit", func(pod *corev1.Pod) error {
		for _, c := range pod.Status.ContainerStatuses {
			if c.Resources == nil || c.Resources.Limits.Cpu().MilliValue() != 150 {
				return fmt.Errorf("resources are %+v", c.Resources)
			}
		}
		return nil
	})
	if was, is := before.Status.ContainerStatuses[0].ContainerID, after.Status.ContainerStatuses[0].ContainerID; was != is {
		t.Errorf("the container was replaced: %s, %s", was, is)
	}
	s.hub.inPods(t, "delete", "pod", "resized", "--timeout=90s")
}
