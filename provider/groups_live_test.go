// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/provider/pod"
)

// nodeAs waits until the node of a group is ready as wanted; "" is no node.
func (h *liveHub) nodeAs(group, want string) *corev1.Node {
	h.t.Helper()
	var node *corev1.Node
	got := ""
	defer func() {
		if got != want {
			h.t.Logf("node of the group %s: got %q, want %q", group, got, want)
		}
	}()
	livetest.Eventually(h.t, "the node of a group is as wanted", func() bool {
		var err error
		if node, err = h.api.CoreV1().Nodes().Get(h.t.Context(), h.name+"."+group, metav1.GetOptions{}); err != nil {
			got = ""
			return apierrors.IsNotFound(err) && want == ""
		}
		c := findCondition(node.Status.Conditions, corev1.NodeReady)
		got = string(c.Status) + " " + c.Reason
		return got == want
	})
	return node
}

// bindTo makes a pod that is bound to the node of a group.
func (h *liveHub) bindTo(group string) *corev1.Pod {
	h.t.Helper()
	made, err := h.api.CoreV1().Pods(metav1.NamespaceDefault).Create(h.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.name},
		Spec: corev1.PodSpec{
			NodeName: h.name + "." + group, AutomountServiceAccountToken: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "c", Image: "spokelet.io/test/busybox:latest"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(h.unbind)
	return made
}

func (h *liveHub) unbind() {
	_ = h.api.CoreV1().Pods(metav1.NamespaceDefault).Delete(context.WithoutCancel(h.t.Context()), h.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func TestGroupNodesAppearAndDisappearOnRealHub(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	h.provider.SetGroupSummary(h.name, "gpu", of("4"))
	h.provider.SetGroupSummary(h.name, "std", of("2"))
	h.provider.SetSummary(h.name, pooled("gpu", "std"))
	h.await("True NodesReady")
	node := h.nodeAs("gpu", "True NodesReady")
	h.nodeAs("std", "True NodesReady")
	if node.Labels[poolLabel] != "gpu" || node.Labels[wire.LabelCluster] != h.name || node.Status.Allocatable.Cpu().String() != "4" {
		t.Errorf("labels %v, allocatable %v", node.Labels, node.Status.Allocatable)
	}
	body, err := h.api.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("metrics/resource").DoRaw(t.Context())
	if want := "# TYPE scrape_error gauge\nscrape_error 2\n"; err != nil || string(body) != want {
		t.Errorf("figures of a group: got %q, %v; want %q", body, err, want)
	}

	h.provider.SetGroupSummary(h.name, "new", of("1"))
	h.provider.SetSummary(h.name, pooled("gpu", "new", "std"))
	h.nodeAs("new", "True NodesReady")
	h.bindTo("gpu")
	h.provider.SetSummary(h.name, pooled())
	h.nodeAs("std", "")
	h.nodeAs("new", "")
	node = h.nodeAs("gpu", "False NoNodes")
	if !node.Status.Allocatable.Cpu().IsZero() || !node.Status.Capacity.Pods().IsZero() {
		t.Errorf("a group without nodes has %v", node.Status.Allocatable)
	}
	h.unbind()
	h.nodeAs("gpu", "")
	h.await("True NodesReady")
}

func TestGroupLabelIsRemovedWithConsentOnRealHub(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	h.provider.SetGroupSummary(h.name, "gpu", of("4"))
	h.provider.SetSummary(h.name, pooled("gpu"))
	h.nodeAs("gpu", "True NodesReady")
	h.bindTo("gpu")
	withdrawn := h.cluster()
	withdrawn.Consent = pod.Consent{}
	if err := h.provider.Ensure(t.Context(), withdrawn); err != nil {
		t.Fatal(err)
	}
	if got, ok := h.nodeAs("gpu", "False NoNodes").Labels[poolLabel]; ok {
		t.Errorf("the node still has the label, with value %q", got)
	}
	h.unbind()
	h.nodeAs("gpu", "")
}

func TestGroupNodesSurviveRestartOnRealHub(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	h.provider.SetGroupSummary(h.name, "gpu", of("4"))
	h.provider.SetGroupSummary(h.name, "std", of("2"))
	h.provider.SetSummary(h.name, pooled("gpu", "std"))
	before := h.nodeAs("gpu", "True NodesReady")
	h.nodeAs("std", "True NodesReady")
	h.bindTo("gpu")

	again := h.successor()
	again.accept() // says no group
	again.nodeAs("std", "")
	after := again.nodeAs("gpu", "False NoNodes")
	if after.UID != before.UID {
		t.Error("the node was made anew while a pod is bound to it")
	}
	again.provider.SetGroupSummary(h.name, "gpu", of("4"))
	again.provider.SetSummary(h.name, pooled("gpu"))
	if node := again.nodeAs("gpu", "True NodesReady"); node.UID != before.UID || node.Labels[poolLabel] != "gpu" {
		t.Errorf("node %s, labels %v", node.UID, node.Labels)
	}
	if err := again.provider.Remove(t.Context(), h.name); err != nil {
		t.Fatal(err)
	}
	again.nodeAs("gpu", "")
}

func TestTopologyLabelsSurviveRestartOnRealHub(t *testing.T) {
	t.Parallel()
	h := startLiveHub(t)
	h.accept()
	h.await("True NodesReady")
	again := h.successor()
	if err := again.provider.Ensure(t.Context(), h.cluster()); err != nil {
		t.Fatal(err)
	}
	zone := func() string {
		node, err := h.api.CoreV1().Nodes().Get(t.Context(), h.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return node.Labels[corev1.LabelTopologyZone]
	}
	again.links.set(Link{Cluster: h.name, Up: true})
	again.links.set(Link{Cluster: h.name, Reason: "lost"})
	again.await("False TunnelDisconnected")
	if got := zone(); got != "a" {
		t.Errorf("zone is %q before the cluster has said any", got)
	}
	again.links.set(Link{Cluster: h.name, Up: true})
	again.provider.SetSummary(h.name, in([]string{"a", "b"}, nil))
	again.await("True NodesReady")
	if got := zone(); got != "" {
		t.Errorf("zone is %q when the cluster lies in two", got)
	}
}

// successor is the next process of the same hub, which has ended.
func (h *liveHub) successor() *liveHub {
	h.t.Helper()
	h.stop()
	h.succeeded = true
	next := &liveHub{hub: &hub{t: h.t, links: &fakeLinks{}, endpoints: &fakeEndpoints{open: map[string]int32{}}}, api: h.api, count: h.count, name: h.name}
	next.start(h.api, netip.MustParseAddr("192.0.2.10"), next.endpoints, livePods(h.t, h.api))
	return next
}
