// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// viewed is a connected cluster that says that.
func viewed(s wire.NodeSummary) nodeState {
	return nodeState{cluster: spoke1, address: "192.0.2.10", port: 20000, link: Link{Cluster: "spoke1", Up: true}, wasConnected: true, graceEnded: true, summary: &s}
}

func TestNodeConditionsFollowSummary(t *testing.T) {
	ready := func(status, reason, message string) wire.NodeCondition {
		return wire.NodeCondition{Type: "Ready", Status: status, Reason: reason, Message: message}
	}
	cases := map[string]struct {
		reason string
		view   nodeState
		want   string // of Ready: status, reason and message
	}{
		"some are ready": {
			reason: "the cluster takes work, and says how many",
			view:   viewed(wire.NodeSummary{Conditions: []wire.NodeCondition{ready("True", "NodesReady", "3 of 4 nodes are ready")}}),
			want:   "True NodesReady: 3 of 4 nodes are ready",
		},
		"none is ready": {
			reason: "the node is as little ready as its cluster, though its agent answers",
			view: viewed(wire.NodeSummary{Conditions: []wire.NodeCondition{
				ready("False", "NoReadyNodes", "0 of 4 nodes are ready: KubeletNotReady"),
			}}),
			want: "False NoReadyNodes: 0 of 4 nodes are ready: KubeletNotReady",
		},
		"there are none": {
			reason: "so is a cluster without nodes",
			view:   viewed(wire.NodeSummary{Conditions: []wire.NodeCondition{ready("False", "NoNodes", "the cluster has no nodes")}}),
			want:   "False NoNodes: the cluster has no nodes",
		},
		"it is cut off": {
			reason: "what it said last is not known to be so",
			view: func() nodeState {
				v := viewed(wire.NodeSummary{Conditions: []wire.NodeCondition{ready("True", "NodesReady", "4 of 4 nodes are ready")}})
				v.link = Link{Cluster: "spoke1", Reason: "connection lost"}
				return v
			}(),
			want: "False TunnelDisconnected: cluster spoke1 is not connected: connection lost",
		},
		"it has not said anything": {
			reason: "an agent alone is no node",
			view:   nodeState{cluster: spoke1, link: Link{Up: true}, wasConnected: true, graceEnded: true},
			want:   "False NodeSummaryMissing: cluster spoke1 has not said anything of its nodes",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := findCondition(tc.view.node(metav1.Now()).Status.Conditions, corev1.NodeReady)
			if c == nil {
				t.Fatalf("%s: no condition", tc.reason)
			}
			if got := string(c.Status) + " " + c.Reason + ": " + c.Message; got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNodeAllocatableFollowsSummary(t *testing.T) {
	list := func(cpu, gpu, pods string) wire.Quantities {
		return wire.Quantities{"cpu": cpu, "nvidia.com/gpu": gpu, "pods": pods}
	}
	last := healthy()
	last.Capacity, last.Allocatable = list("8", "4", "220"), list("5750m", "1", "203")
	up := viewed(last)
	down := up
	down.lastStatus = ownStatus(up.node(metav1.Now()).Status)
	down.link, down.summary = Link{Cluster: "spoke1"}, nil
	full := last
	full.Allocatable = list("0", "0", "0")
	cases := map[string]struct {
		reason string
		view   nodeState
		want   wire.Quantities
	}{
		"some is taken":      {reason: "extended resources and places for pods are counted too", view: up, want: list("5750m", "1", "203")},
		"all is taken":       {reason: "zero is said, for what is not said is as much as the capacity", view: viewed(full), want: list("0", "0", "0")},
		"it is disconnected": {reason: "the last that is known is kept: the taint keeps pods off", view: down, want: list("5750m", "1", "203")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := tc.view.node(metav1.Now()).Status
			if diff := cmp.Diff(tc.want, wire.QuantitiesOf(status.Allocatable)); diff != "" {
				t.Errorf("%s: allocatable (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(last.Capacity, wire.QuantitiesOf(status.Capacity)); diff != "" {
				t.Errorf("%s: capacity (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNodeDeclaresFeaturesOfCluster(t *testing.T) {
	said := healthy()
	said.DeclaredFeatures = []string{"A", "ExtendWebSocketsToKubelet", "Resize"}
	split := said
	split.Split = &wire.NodeSplit{Label: "pool", Capacity: said.Capacity, Allocatable: said.Allocatable, DeclaredFeatures: []string{"Whole"}}
	up := viewed(said)
	change := func(f func(*nodeState)) nodeState {
		v := up
		v.lastStatus = ownStatus(up.node(metav1.Now()).Status)
		f(&v)
		return v
	}
	cases := map[string]struct {
		reason string
		view   nodeState
		want   []string
	}{
		"it declares some": {
			reason: "a pod that needs one is scheduled; WebSockets are for the node's own endpoint", view: up, want: []string{"A", endpointFeature, "Resize"},
		},
		"it declares none any more": {
			reason: "its last kubelet with them is gone", view: change(func(v *nodeState) { v.summary = new(healthy()) }), want: []string{endpointFeature},
		},
		"its API server is old": {
			reason: "it does not take the WebSockets of kubectl",
			view: change(func(v *nodeState) {
				old := said
				old.KubernetesVersion = "v1.30.9"
				v.summary = &old
			}),
			want: []string{"A", "Resize"},
		},
		"the hub has just started": {
			reason: "what the Node says stays until the cluster speaks", view: change(func(v *nodeState) { v.summary = nil }), want: []string{"A", endpointFeature, "Resize"},
		},
		"it is cut off": {
			reason: "its pods are resized when it is back", view: change(func(v *nodeState) { v.link = Link{Cluster: "spoke1"} }), want: []string{"A", endpointFeature, "Resize"},
		},
		"its groups are not consented to": {
			reason: "its node is the whole of it", view: viewed(split), want: []string{endpointFeature, "Whole"},
		},
		"its groups are consented to": {
			reason: "its node is the rest of it",
			view: func() nodeState {
				v := viewed(split)
				v.cluster.Consent.SplitLabel = "pool"
				return v
			}(),
			want: []string{"A", endpointFeature, "Resize"},
		},
		"it is a group that is no more": {
			reason: "no machine is left", view: change(func(v *nodeState) { v.group, v.vanished = "gpu", true }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := tc.view.node(metav1.Now()).Status.DeclaredFeatures
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestMessageChangeKeepsTransitionTime: how many nodes are ready changes the
// message; the condition has been what it is for as long as before.
func TestMessageChangeKeepsTransitionTime(t *testing.T) {
	then, now := metav1.Unix(1e9, 0), metav1.NewTime(time.Unix(2e9, 0))
	v := viewed(healthy())
	v.lastStatus = ownStatus(v.node(then).Status)
	v.summary.Conditions = []wire.NodeCondition{{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "1 of 2 nodes are ready"}}
	c := findCondition(v.node(now).Status.Conditions, corev1.NodeReady)
	if c == nil || !c.LastTransitionTime.Equal(&then) || c.Message != "1 of 2 nodes are ready" {
		t.Errorf("Ready: got %+v, want the time of the first", c)
	}
	v.summary.Conditions[0].Status = "False"
	if c := findCondition(v.node(now).Status.Conditions, corev1.NodeReady); c == nil || !c.LastTransitionTime.Equal(&now) {
		t.Errorf("Ready: got %+v, want the time of now", c)
	}
}
