// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// testNode is a ready node of 4 CPUs and 8 GiB; changes are made in order.
func testNode(name string, changes ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
		Status: corev1.NodeStatus{
			Capacity:    list("4", "8Gi"),
			Allocatable: list("3500m", "7Gi"),
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
			},
			NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux", KubeletVersion: "v1.37.2"},
		},
	}
	for _, change := range changes {
		change(node)
	}
	return node
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func with(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, Reason: reason})
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func TestSummarizeNodes(t *testing.T) {
	unready := with(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
	pressed := with(corev1.NodeMemoryPressure, corev1.ConditionTrue, "KubeletHasInsufficientMemory")
	cases := map[string]struct {
		reason      string
		nodes       []*corev1.Node
		ready       wire.NodeCondition
		pressure    string // status and reason of MemoryPressure
		counts      wire.NodeCounts
		capacity    wire.Quantities
		allocatable wire.Quantities
	}{
		"no nodes": {
			reason: "a cluster without nodes takes no work",
			ready:  wire.NodeCondition{Type: "Ready", Status: "False", Reason: "NoNodes", Message: "the cluster has no nodes"},
		},
		"two ready nodes": {
			reason:   "sums are sums",
			nodes:    []*corev1.Node{testNode("b"), testNode("a")},
			ready:    wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "2 of 2 nodes are ready"},
			pressure: "False KubeletHasSufficientMemory", counts: wire.NodeCounts{Total: 2, Ready: 2},
			capacity: wire.Quantities{"cpu": "8", "memory": "16Gi"}, allocatable: wire.Quantities{"cpu": "7", "memory": "14Gi"},
		},
		"one of two is not ready": {
			reason:   "the cluster takes work, on one node",
			nodes:    []*corev1.Node{testNode("a"), testNode("b", unready)},
			ready:    wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "1 of 2 nodes are ready"},
			pressure: "False KubeletHasSufficientMemory", counts: wire.NodeCounts{Total: 2, Ready: 1},
			capacity: wire.Quantities{"cpu": "8", "memory": "16Gi"}, allocatable: wire.Quantities{"cpu": "3500m", "memory": "7Gi"},
		},
		"none is ready": {
			reason: "allocatable is zero and not absent, which would mean all of the capacity",
			nodes:  []*corev1.Node{testNode("a", unready)},
			ready:  wire.NodeCondition{Type: "Ready", Status: "False", Reason: "NoReadyNodes", Message: "0 of 1 nodes are ready: NodeStatusUnknown"},
			counts: wire.NodeCounts{Total: 1}, capacity: wire.Quantities{"cpu": "4", "memory": "8Gi"}, allocatable: wire.Quantities{"cpu": "0", "memory": "0"},
		},
		"one is cordoned": {
			reason:   "it is ready, and takes no work",
			nodes:    []*corev1.Node{testNode("a"), testNode("b", cordoned)},
			ready:    wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "2 of 2 nodes are ready, 1 of them cordoned"},
			pressure: "False KubeletHasSufficientMemory", counts: wire.NodeCounts{Total: 2, Ready: 2},
			capacity: wire.Quantities{"cpu": "8", "memory": "16Gi"}, allocatable: wire.Quantities{"cpu": "3500m", "memory": "7Gi"},
		},
		"one of two under pressure": {
			reason:   "the other one takes work",
			nodes:    []*corev1.Node{testNode("a"), testNode("b", pressed)},
			ready:    wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "2 of 2 nodes are ready"},
			pressure: "False NodesUnderMemoryPressure", counts: wire.NodeCounts{Total: 2, Ready: 2},
			capacity: wire.Quantities{"cpu": "8", "memory": "16Gi"}, allocatable: wire.Quantities{"cpu": "7", "memory": "14Gi"},
		},
		"all under pressure": {
			reason:   "so is the cluster",
			nodes:    []*corev1.Node{testNode("a", pressed)},
			ready:    wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "1 of 1 nodes are ready"},
			pressure: "True KubeletHasInsufficientMemory", counts: wire.NodeCounts{Total: 1, Ready: 1},
			capacity: wire.Quantities{"cpu": "4", "memory": "8Gi"}, allocatable: wire.Quantities{"cpu": "3500m", "memory": "7Gi"},
		},
		"a virtual node": {
			reason:   "a hub that is its own spoke would grow for ever",
			nodes:    []*corev1.Node{testNode("a"), testNode("v", func(n *corev1.Node) { n.Spec.ProviderID = "spokelet://x" })},
			ready:    wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "1 of 1 nodes are ready"},
			pressure: "False KubeletHasSufficientMemory", counts: wire.NodeCounts{Total: 1, Ready: 1},
			capacity: wire.Quantities{"cpu": "4", "memory": "8Gi"}, allocatable: wire.Quantities{"cpu": "3500m", "memory": "7Gi"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := summarizeNodes(tc.nodes, nil, "v1.37.2")
			body, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.DecodeNodeSummary(body); err != nil {
				t.Errorf("the hub would refuse it: %v", err)
			}
			var ready wire.NodeCondition
			pressure := ""
			for _, c := range got.Conditions {
				switch c.Type {
				case "Ready":
					ready = c
				case "MemoryPressure":
					pressure = c.Status + " " + c.Reason
				}
			}
			if diff := cmp.Diff(tc.ready, ready); diff != "" {
				t.Errorf("%s: Ready (-want +got):\n%s", tc.reason, diff)
			}
			if pressure != tc.pressure {
				t.Errorf("%s: MemoryPressure: got %q, want %q", tc.reason, pressure, tc.pressure)
			}
			if got.Nodes != tc.counts {
				t.Errorf("%s: counts: got %+v, want %+v", tc.reason, got.Nodes, tc.counts)
			}
			if diff := cmp.Diff([]wire.Quantities{tc.capacity, tc.allocatable}, []wire.Quantities{got.Capacity, got.Allocatable}); diff != "" {
				t.Errorf("%s: capacity and allocatable (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReadyConditionCountsNodes(t *testing.T) {
	unready := func(reason string) func(*corev1.Node) {
		return with(corev1.NodeReady, corev1.ConditionFalse, reason)
	}
	silent := func(n *corev1.Node) { n.Status.Conditions = nil }
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		want   string
	}{
		"three of four": {
			reason: "the cluster takes work on those",
			nodes:  []*corev1.Node{testNode("a"), testNode("b"), testNode("c"), testNode("d", unready("KubeletNotReady"))},
			want:   "True NodesReady: 3 of 4 nodes are ready",
		},
		"one is cordoned": {
			reason: "that is why it can take less",
			nodes:  []*corev1.Node{testNode("a"), testNode("b", cordoned), testNode("c", cordoned, unready("KubeletNotReady"))},
			want:   "True NodesReady: 2 of 3 nodes are ready, 1 of them cordoned",
		},
		"all are cordoned": {
			reason: "what runs goes on, and nothing is added: allocatable says that",
			nodes:  []*corev1.Node{testNode("a", cordoned)},
			want:   "True NodesReady: 1 of 1 nodes are ready, 1 of them cordoned",
		},
		"none, for several reasons": {
			reason: "each reason once, in order",
			nodes:  []*corev1.Node{testNode("a", unready("NodeStatusUnknown")), testNode("b", unready("KubeletNotReady")), testNode("c", unready("NodeStatusUnknown"))},
			want:   "False NoReadyNodes: 0 of 3 nodes are ready: KubeletNotReady, NodeStatusUnknown",
		},
		"none, for no reason": {
			reason: "a node that has not said anything yet is not ready",
			nodes:  []*corev1.Node{testNode("a", silent)},
			want:   "False NoReadyNodes: 0 of 1 nodes are ready",
		},
		"none, for long reasons": {
			reason: "they are cut to what a hub takes",
			nodes:  []*corev1.Node{testNode("a", unready(strings.Repeat("x", 300)))},
			want:   "False NoReadyNodes: " + ("0 of 1 nodes are ready: " + strings.Repeat("x", 300))[:256],
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := readyCondition(tc.nodes, slices.DeleteFunc(slices.Clone(tc.nodes), func(n *corev1.Node) bool { return !isReady(n) }))
			if got := c.Status + " " + c.Reason + ": " + c.Message; got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestAllocatableExcludesRequestsOfPods(t *testing.T) {
	unready := with(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
	equipped := func(n *corev1.Node) {
		n.Status.Allocatable["nvidia.com/gpu"], n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("4"), resource.MustParse("110")
		n.Status.Capacity = n.Status.Allocatable
	}
	gpus := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("3"), corev1.ResourcePods: resource.MustParse("7")}
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		taken  requestsByNode
		want   wire.Quantities
	}{
		"some of it is taken": {
			reason: "by pods that the hub does not know of",
			nodes:  []*corev1.Node{testNode("a"), testNode("b")},
			taken:  requestsByNode{"a": list("250m", "1Gi"), "b": list("1", "100M"), "gone": list("9", "9Gi")},
			want:   wire.Quantities{"cpu": "5750m", "memory": "13858643712"},
		},
		"extended resources and places": {
			reason: "they are counted like the others, and what no node has is not",
			nodes:  []*corev1.Node{testNode("a", equipped), testNode("b", equipped)},
			taken:  requestsByNode{"a": gpus, "b": {"example.com/other": resource.MustParse("1")}},
			want:   wire.Quantities{"cpu": "7", "memory": "14Gi", "nvidia.com/gpu": "5", "pods": "213"},
		},
		"more is taken than there is": {
			reason: "what a kubelet starts by itself is asked nothing; the other node has what it has",
			nodes:  []*corev1.Node{testNode("a"), testNode("b")},
			taken:  requestsByNode{"a": list("4", "8Gi")},
			want:   wire.Quantities{"cpu": "3500m", "memory": "7Gi"},
		},
		"what is taken was not to be had": {
			reason: "a node that takes no work gives nothing, and so nothing is taken of it",
			nodes: []*corev1.Node{
				testNode("a"), testNode("b", cordoned), testNode("c", unready), testNode("v", func(n *corev1.Node) { n.Spec.ProviderID = "spokelet://x" }),
			},
			taken: requestsByNode{"b": list("1", "1Gi"), "c": list("1", "1Gi"), "v": list("1", "1Gi")},
			want:  wire.Quantities{"cpu": "3500m", "memory": "7Gi"},
		},
		"all are cordoned": {
			reason: "nothing is zero, and said",
			nodes:  []*corev1.Node{testNode("a", cordoned)},
			want:   wire.Quantities{"cpu": "0", "memory": "0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := testNode("a").Status.Allocatable
			got := summarizeNodes(tc.nodes, tc.taken, "v1.37.2")
			if diff := cmp.Diff(tc.want, got.Allocatable); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if cpu := tc.nodes[0].Status.Allocatable[corev1.ResourceCPU]; cpu.Cmp(before[corev1.ResourceCPU]) != 0 {
				t.Errorf("the cached node was written: it has %s CPUs", cpu.String())
			}
		})
	}
}

func TestSummaryIgnoresOrderAndUnits(t *testing.T) {
	a := testNode("a", func(n *corev1.Node) { n.Status.Capacity = list("1", "1024Mi") })
	b := testNode("b", func(n *corev1.Node) { n.Status.Capacity = list("1000m", "1000000000") })
	one, err := summarizeNodes([]*corev1.Node{a, b}, nil, "v1.37.2").Encode()
	if err != nil {
		t.Fatal(err)
	}
	other, err := summarizeNodes([]*corev1.Node{b, a}, nil, "v1.37.2").Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(one), string(other)); diff != "" {
		t.Errorf("two summaries of one cluster:\n%s", diff)
	}
}

func TestDifferingNodeInfoIsMixed(t *testing.T) {
	arm := func(n *corev1.Node) {
		n.Status.NodeInfo.Architecture, n.Labels[corev1.LabelTopologyZone] = "arm64", "b"
	}
	got := summarizeNodes([]*corev1.Node{testNode("a"), testNode("b", arm)}, nil, "v1.37.2")
	if got.NodeInfo.Architecture != wire.Mixed || got.NodeInfo.OperatingSystem != "linux" {
		t.Errorf("node info: got %+v", got.NodeInfo)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got.Zones); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
}

func TestCommonSystemIsThatOfReadyNodes(t *testing.T) {
	unready := with(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")
	on := func(os, arch string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture = os, arch }
	}
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		want   wire.NodeSystem
	}{
		"no nodes":             {reason: "nobody agrees on anything"},
		"one":                  {reason: "it is of one mind", nodes: []*corev1.Node{testNode("a")}, want: wire.NodeSystem{OS: "linux", Arch: "amd64"}},
		"all agree":            {reason: "so does the cluster", nodes: []*corev1.Node{testNode("a"), testNode("b")}, want: wire.NodeSystem{OS: "linux", Arch: "amd64"}},
		"one differs in both":  {reason: "a pod might come to either", nodes: []*corev1.Node{testNode("a"), testNode("b", on("windows", "arm64"))}},
		"one differs in one":   {reason: "they agree on the other", nodes: []*corev1.Node{testNode("a"), testNode("b", on("linux", "arm64"))}, want: wire.NodeSystem{OS: "linux"}},
		"one that is not told": {reason: "it may be anything", nodes: []*corev1.Node{testNode("a"), testNode("b", on("", ""))}},
		"one that is not ready differs": {
			reason: "no pod goes there", nodes: []*corev1.Node{testNode("a"), testNode("b", on("windows", "arm64"), unready)},
			want: wire.NodeSystem{OS: "linux", Arch: "amd64"},
		},
		"none is ready": {
			reason: "a label that comes and goes with the last node ends the pods of DaemonSets that select it",
			nodes:  []*corev1.Node{testNode("a", unready), testNode("b", unready)}, want: wire.NodeSystem{OS: "linux", Arch: "amd64"},
		},
		"none is ready and one differs": {
			reason: "which of them comes back is not known",
			nodes:  []*corev1.Node{testNode("a", unready), testNode("b", on("windows", "amd64"), unready)}, want: wire.NodeSystem{Arch: "amd64"},
		},
		"a node says what no kubelet does": {reason: "the hub would refuse it", nodes: []*corev1.Node{testNode("a", on("a b", "Mixed"))}},
		"a virtual node differs": {
			reason: "it is no machine", nodes: []*corev1.Node{testNode("a"), testNode("v", on("windows", "arm64"), func(n *corev1.Node) { n.Spec.ProviderID = "spokelet://x" })},
			want: wire.NodeSystem{OS: "linux", Arch: "amd64"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, summarizeNodes(tc.nodes, nil, "v1.37.2").System); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
