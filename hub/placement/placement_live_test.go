// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/mutation"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/provider"
)

// liveHub is a real hub, with its DaemonSets' controller, and a virtual node of which no
// kubelet says anything: pods that are made for it stay as they are.
type liveHub struct {
	t         *testing.T
	kube      kubernetes.Interface
	client    client.Client
	namespace string
	// real is how many nodes run pods.
	real int32
}

func newLiveHub(t *testing.T) *liveHub {
	t.Helper()
	config := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	// A DaemonSet has a pod on each node that is there, and the policy is about all of them.
	livetest.Lock(t, "SPOKELET_HUB_KUBECONFIG", "nodes", livetest.Exclusive)
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &liveHub{t: t, kube: kubernetes.NewForConfigOrDie(config), client: c}
	nodes, err := h.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "!" + wire.LabelCluster})
	h.must(err)
	if h.real = int32(len(nodes.Items)); h.real == 0 {
		t.Fatal("the hub has no nodes")
	}
	h.namespace = livetest.Namespace(t, h.kube, "daemonset-")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: bare}}
	node.Spec.Taints = []corev1.Taint{{Key: provider.TaintVirtualNode, Effect: corev1.TaintEffectNoSchedule}}
	_, err = h.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	h.must(err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = h.kube.CoreV1().Nodes().Delete(ctx, "virtual", metav1.DeleteOptions{})
		_ = h.uninstall(ctx)
	})
	return h
}

func (h *liveHub) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// install has the policy in force: an API server hears of it a moment later.
func (h *liveHub) install() {
	h.t.Helper()
	h.must(Install(h.t.Context(), h.client))
	livetest.Eventually(h.t, "the policy is in force", func() bool {
		made, err := h.kube.AppsV1().DaemonSets(h.namespace).Create(h.t.Context(), h.daemonSet("probe", everything), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && !toleratesAllUntargeted(made)
	})
}

func (h *liveHub) uninstall(ctx context.Context) error {
	objects, err := mutation.Parse(policyYAML)
	if err != nil {
		return err
	}
	return mutation.Remove(ctx, h.client, objects)
}

// label gives the virtual node the labels of its system.
func (h *liveHub) label() {
	h.t.Helper()
	labels := maps.Clone(linux)
	labels[corev1.LabelArchStable] = "amd64"
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	h.must(err)
	_, err = h.kube.CoreV1().Nodes().Patch(h.t.Context(), "virtual", types.MergePatchType, body, metav1.PatchOptions{})
	h.must(err)
}

// daemonSet replaces its pods one after the other.
func (h *liveHub) daemonSet(name, spec string) *appsv1.DaemonSet {
	h.t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1))},
	}
	h.must(yaml.UnmarshalStrict([]byte(spec), &d.Spec.Template.Spec))
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(0))
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "spokelet.io/test/busybox:latest", ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "1d"},
	}}
	return d
}

func (h *liveHub) create(name, spec string) {
	h.t.Helper()
	_, err := h.kube.AppsV1().DaemonSets(h.namespace).Create(h.t.Context(), h.daemonSet(name, spec), metav1.CreateOptions{})
	h.must(err)
}

// restart does what "kubectl rollout restart" does.
func (h *liveHub) restart(name, when string) {
	h.t.Helper()
	body := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, when)
	_, err := h.kube.AppsV1().DaemonSets(h.namespace).Patch(h.t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
	h.must(err)
}

// waitForCounts waits until the controller has seen a DaemonSet as it is, wants so many pods,
// and has so many that are available, all of them new.
func (h *liveHub) waitForCounts(name string, wanted, available int32, when string) {
	h.t.Helper()
	livetest.Eventually(h.t, fmt.Sprintf("%s %s: %d pods of %d", name, when, available, wanted), func() bool {
		d, err := h.kube.AppsV1().DaemonSets(h.namespace).Get(h.t.Context(), name, metav1.GetOptions{})
		h.must(err)
		s := d.Status
		return s.ObservedGeneration >= d.Generation && s.DesiredNumberScheduled == wanted && s.UpdatedNumberScheduled == wanted && s.NumberAvailable == available
	})
}

// waitForRollout is what "kubectl rollout status" waits for.
func (h *liveHub) waitForRollout(name, when string) {
	h.t.Helper()
	h.waitForCounts(name, h.real, h.real, when)
	pods, err := h.kube.CoreV1().Pods(h.namespace).List(h.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	h.must(err)
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "virtual" && pod.DeletionTimestamp == nil {
			h.t.Errorf("%s %s: pod %s is on the virtual node", name, when, pod.Name)
		}
	}
}

// TestLivePolicyKeepsPodsOffVirtualNodes has one admit what the tests of
// the policy are about.
func TestLivePolicyKeepsPodsOffVirtualNodes(t *testing.T) {
	h := newLiveHub(t)
	h.install()
	policy, dryRun := compilePolicy(t), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for name, tc := range templates {
		t.Run(name, func(t *testing.T) {
			d := h.daemonSet("everywhere", tc.spec)
			set, err := h.kube.AppsV1().DaemonSets(h.namespace).Create(t.Context(), d, dryRun)
			h.must(err)
			if diff := cmp.Diff(admit(t, policy, d, nil).Spec.Template.Spec.Affinity, set.Spec.Template.Spec.Affinity); diff != "" {
				t.Errorf("affinity of a DaemonSet (-want +got):\n%s", diff)
			}
			p := podOf(d)
			p.Namespace = h.namespace
			pod, err := h.kube.CoreV1().Pods(h.namespace).Create(t.Context(), p, dryRun)
			h.must(err)
			if diff := cmp.Diff(admit(t, policy, p, nil).Spec.Affinity, pod.Spec.Affinity); diff != "" {
				t.Errorf("affinity of a pod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLiveDaemonSetToleratingEverythingRollsOut(t *testing.T) {
	h := newLiveHub(t)
	h.label()
	h.install()
	h.create("everything", everything)
	h.create("on-linux", onLinux)
	for _, name := range []string{"everything", "on-linux"} {
		h.waitForRollout(name, "when it was made")
		h.restart(name, "now")
		h.waitForRollout(name, "when it was updated")
	}
}

func TestLiveOlderDaemonSetCountsVirtualNodeUntilRestart(t *testing.T) {
	h := newLiveHub(t)
	h.must(h.uninstall(t.Context()))
	livetest.Eventually(t, "the policy is not in force", func() bool {
		made, err := h.kube.AppsV1().DaemonSets(h.namespace).Create(t.Context(), h.daemonSet("probe", everything), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && toleratesAllUntargeted(made)
	})
	h.create("on-linux", onLinux)
	h.waitForRollout("on-linux", "before the node is labelled")

	s, err := NewDaemonSets(h.kube, nil, func() {})
	h.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan error, 1)
	go func() { finished <- s.Start(ctx) }()
	defer func() { cancel(); h.must(<-finished) }()
	objects := func(want bool) {
		t.Helper()
		livetest.Eventually(t, fmt.Sprintf("objection %t", want), func() bool {
			text, known := s.Objection(bare, linux)
			return known && (text != "") == want
		})
	}
	h.install()
	objects(true)
	h.label()
	h.waitForCounts("on-linux", h.real+1, h.real, "after the node is labelled: it waits for the node, which is why it should not be")
	h.restart("on-linux", "now")
	h.waitForRollout("on-linux", "after its pods were restarted")
	objects(false)
}
