// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if pod.Status.Phase != phase {
			return fmt.Errorf("not %s", phase)
		}
		return nil
	}
}

// podIsReady makes the pod that the other tests look at.
func (s *tests) podIsReady(t *testing.T) {
	s.Hub.Apply(t, s.LongLivedPod())
	testbed.UntilPod(t, s.Hub, testbed.LongLived, "ready", testbed.Ready)
}

// podsRun makes pods on the hub that are bound to a virtual node.
func (s *tests) podsRun(t *testing.T) {
	testbed.Parallel(t, map[string]func(*testing.T){
		"what the spoke says of a pod is what the hub says": s.podIsMirrored,
		"ConfigMaps and Secrets follow live":                s.referencesFollow,
		"a missing ConfigMap is named, and healed":          s.missingReferenceHeals,
		"a pod that cannot run there says why":              s.podsRefused,
		"a token is the spoke's":                            s.tokenIsTheSpokes,
		"init containers and sidecars":                      s.initAndSidecar,
		"containers that end":                               s.containersEnd,
		"a Job completes":                                   s.jobCompletes,
		"a Deployment scales, rolls and is replaced":        s.deploymentRolls,
		"a container is resized in place":                   s.containerIsResized,
		"a DaemonSet's pod is not taken":                    s.daemonSetWaits,
		"DaemonSets that tolerate everything stay off":      s.daemonSetsStayOff,
		"a Deployment selects the system, as charts do":     s.systemIsSelected,
		"a pod is deleted with its grace, or without":       s.podIsDeleted,
	})
}

func (s *tests) podIsMirrored(t *testing.T) {
	var hub, spoke *corev1.Pod
	// What the kubelet says last is on its way when both say that the pod is ready.
	testbed.Until(t, "the same on both sides", testbed.Settle, func(context.Context) error {
		hub, spoke = testbed.GetPod(t, s.Hub, testbed.LongLived), testbed.GetPod(t, s.Spoke(), testbed.LongLived)
		return sameStatus(spoke, hub)
	})
	if got := spoke.Labels["spokelet.io/hub-pod-uid"]; types.UID(got) != hub.UID {
		t.Errorf("mark in the spoke: got %q, want %q", got, hub.UID)
	}
	testbed.Until(t, "events of the spoke's kubelet on the hub", testbed.Settle, func(ctx context.Context) error {
		events, err := s.Hub.Kube.CoreV1().Events(testbed.PodsNamespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(hub.UID)})
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
	if out := s.Hub.InPods(t, "describe", "pod", testbed.LongLived); !strings.Contains(out, "Started") || !strings.Contains(out, hub.Status.PodIP) {
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

func (s *tests) tokenIsTheSpokes(t *testing.T) {
	token := s.Hub.InPods(t, "exec", testbed.LongLived, "-c", "main", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	review := func(on *testbed.Site) authenticationv1.TokenReviewStatus {
		got, err := on.Kube.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	want := "system:serviceaccount:" + testbed.PodsNamespace + ":default"
	if got := review(s.Spoke()); !got.Authenticated || got.User.Username != want {
		t.Errorf("the spoke knows the token as %+v, want %s", got, want)
	}
	if got := review(s.Hub); got.Authenticated {
		t.Errorf("the hub knows the token as %+v", got.User)
	}
}

func (s *tests) containerIsResized(t *testing.T) {
	s.Hub.Apply(t, testbed.Pod("resized", "", testbed.Container("main", testbed.Forever, "resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}, ")))
	before := testbed.UntilPod(t, s.Hub, "resized", "ready", testbed.Ready)
	s.Hub.InPods(t, "patch", "pod", "resized", "--subresource=resize", "-p", `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"150m"}}}]}}`)
	after := testbed.UntilPod(t, s.Hub, "resized", "new limit", func(pod *corev1.Pod) error {
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
	s.Hub.InPods(t, "delete", "pod", "resized", "--timeout=300s")
}
