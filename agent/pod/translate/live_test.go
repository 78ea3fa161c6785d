// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// livePods are of a real API server, in a namespace of their own.
func livePods(t *testing.T) (pods typedcorev1.PodInterface, namespace string) {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	namespace = livetest.Namespace(t, kube, "shape-")
	// A controller makes it too, where there is one, but nobody waits for that.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := kube.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return kube.CoreV1().Pods(namespace), namespace
}

func liveOptions(namespace string) Options {
	return Options{HubID: hubID, Namespace: namespace, Tokens: TokensSpoke}
}

// liveHub is a pod as the API server of a hub has it, with all that is filled in.
func liveHub(t *testing.T, pods typedcorev1.PodInterface, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
	out, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatalf("create the hub's pod: %v", err)
	}
	return out
}

func TestAPIServerAcceptsComputedChanges(t *testing.T) {
	pods, namespace := livePods(t)
	hub := liveHub(t, pods, hubPod(t, `{"automountServiceAccountToken":false,"nodeSelector":{"no":"node"},"activeDeadlineSeconds":600,
		"initContainers":[{"name":"init","image":"init:1"}],
		"containers":[{"name":"main","image":"web:1","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"1"}}},{"name":"side","image":"side:1"}]}`))
	pod := mustPod(t, hub, liveOptions(namespace))
	// No scheduler takes it: what is tried is the API.
	pod.Spec.SchedulerName = "nobody"
	live, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if c := ComputeChanges(pod, live); !c.Empty() {
		t.Errorf("Change() of a pod that was just made: got update %s, resize %s, ephemeral %s", c.Update, c.Resize, c.Ephemeral)
	}
	hub.Labels = map[string]string{"tier": "front"}
	hub.Spec.Containers[1].Image = "side:2"
	hub.Spec.InitContainers[0].Image = "init:2"
	hub.Spec.ActiveDeadlineSeconds = new(int64(60))
	hub.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu("200m"), Limits: cpu("2")}
	hub.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debugger")}
	want, err := NewDesiredPod(hub, liveOptions(namespace))
	if err != nil {
		t.Fatalf("Want(): %v", err)
	}
	for range 3 {
		live = write(t, pods, live, ComputeChanges(want, live))
	}
	if c := ComputeChanges(want, live); !c.Empty() {
		t.Errorf("Change() of what was written: got update %s, resize %s, ephemeral %s", c.Update, c.Resize, c.Ephemeral)
	}
	got := []any{live.Labels["tier"], live.Labels["app"], live.Spec.InitContainers[0].Image, live.Spec.Containers[1].Image, *live.Spec.ActiveDeadlineSeconds,
		live.Spec.Containers[0].Resources.Limits.Cpu().String(), live.Spec.EphemeralContainers[0].Name}
	if diff := cmp.Diff([]any{"front", "", "init:2", "side:2", int64(60), "2", "debugger"}, got); diff != "" {
		t.Errorf("live pod (-want +got):\n%s", diff)
	}
}

// write does one round of what Changes say, as the engine does.
func write(t *testing.T, pods typedcorev1.PodInterface, live *corev1.Pod, c Changes) *corev1.Pod {
	t.Helper()
	for _, w := range []struct {
		patch        []byte
		subresources []string
	}{{patch: c.Ephemeral, subresources: []string{"ephemeralcontainers"}}, {patch: c.Resize, subresources: []string{"resize"}}, {patch: c.Update}} {
		if w.patch == nil {
			continue
		}
		_, err := pods.Patch(t.Context(), live.Name, types.StrategicMergePatchType, w.patch, metav1.PatchOptions{}, w.subresources...)
		if apierrors.IsConflict(err) {
			continue // the one before made another version; the next round has it
		}
		if err != nil {
			t.Fatalf("patch %s %v: %v", w.patch, w.subresources, err)
		}
	}
	out, err := pods.Get(t.Context(), live.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPatchNamesTheUIDOfThePod(t *testing.T) {
	pods, namespace := livePods(t)
	hub := liveHub(t, pods, hubPod(t, `{"automountServiceAccountToken":false,"containers":[{"name":"main","image":"web:1"}]}`))
	pod := mustPod(t, hub, liveOptions(namespace))
	pod.Spec.SchedulerName = "nobody"
	first, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the second: %v", err)
	}
	hub.Labels["tier"] = "front"
	hub.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu("200m")}
	hub.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debugger")}
	want, err := NewDesiredPod(hub, liveOptions(namespace))
	if err != nil {
		t.Fatalf("Want(): %v", err)
	}
	c := ComputeChanges(want, first)
	for subresource, patch := range map[string][]byte{"": c.Update, "resize": c.Resize, "ephemeralcontainers": c.Ephemeral} {
		_, err := pods.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresource)
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("patch %s of the pod that was there before (%q): got %v", patch, subresource, err)
		}
	}
}
