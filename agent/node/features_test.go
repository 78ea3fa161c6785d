// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func declaring(features ...string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.DeclaredFeatures = features }
}

func TestCommonFeaturesAreThoseOfAllReadyNodes(t *testing.T) {
	unready := with(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady")
	var many []string
	for i := range 2 * wire.NodeSummaryMaxFeatures {
		many = append(many, fmt.Sprintf("Feature%03d", i))
	}
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		want   []string
	}{
		"one node":  {reason: "it is the cluster", nodes: []*corev1.Node{testNode("a", declaring("B", "A"))}, want: []string{"A", "B"}},
		"two nodes": {reason: "a pod may come to either", nodes: []*corev1.Node{testNode("a", declaring("A", "B", "D")), testNode("b", declaring("B", "C", "D"))}, want: []string{"B", "D"}},
		"one is not ready": {
			reason: "no pod comes to that", nodes: []*corev1.Node{testNode("a", unready), testNode("b", declaring("A"))}, want: []string{"A"},
		},
		"one declares nothing": {reason: "it is of an earlier version", nodes: []*corev1.Node{testNode("a", declaring("A")), testNode("b")}},
		"none is ready":        {reason: "nothing has a feature", nodes: []*corev1.Node{testNode("a", unready, declaring("A"))}},
		"a virtual one": {
			reason: "it is no machine", nodes: []*corev1.Node{testNode("a", declaring("A")), testNode("v", func(n *corev1.Node) { n.Spec.ProviderID = "spokelet://x" })},
			want: []string{"A"},
		},
		"more than a hub takes":    {reason: "it would refuse the summary", nodes: []*corev1.Node{testNode("a", declaring(many...))}, want: many[:wire.NodeSummaryMaxFeatures]},
		"one that a hub refuses":   {reason: "with it, it would refuse the summary", nodes: []*corev1.Node{testNode("a", declaring("A", "not one", strings.Repeat("L", 200)))}, want: []string{"A"}},
		"one twice, and a part":    {reason: "as the API server takes them", nodes: []*corev1.Node{testNode("a", declaring("A/b", "A", "A"))}, want: []string{"A", "A/b"}},
		"a cluster without a node": {reason: "nothing has a feature"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := summarizeNodes(tc.nodes, nil, "v1.37.2")
			if diff := cmp.Diff(tc.want, got.DeclaredFeatures, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			body, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.DecodeNodeSummary(body); err != nil {
				t.Errorf("the hub would refuse it: %v", err)
			}
		})
	}
}

func TestGroupSummaryHasFeaturesOfItsNodes(t *testing.T) {
	unready := with(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady")
	synctest.Test(t, func(t *testing.T) {
		s, stop := startSplitting(t, plain,
			testNode("a", declaring("A", "B")), testNode("b", inPool("gpu"), declaring("A", "C")), testNode("c", inPool("std"), declaring("A", "C", "D")))
		defer stop()
		check := func(when string, want map[string]string) {
			t.Helper()
			synctest.Wait()
			got := map[string]string{"": strings.Join(s.rest.DeclaredFeatures, " "), "whole": strings.Join(s.rest.Split.DeclaredFeatures, " ")}
			for name, g := range maps.All(s.groups) {
				got[name] = strings.Join(g.DeclaredFeatures, " ")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		check("at first", map[string]string{"": "A B", "gpu": "A C", "std": "A C D", "whole": "A"})
		for _, change := range []struct {
			when string
			node *corev1.Node
			want map[string]string
		}{
			{
				"a kubelet of another version", testNode("b", inPool("gpu"), declaring("A", "C", "E")),
				map[string]string{"": "A B", "gpu": "A C E", "std": "A C D", "whole": "A"},
			},
			{
				"no machine of the rest is ready, and what was bound to it before the split runs in groups", testNode("a", unready, declaring("A", "B")),
				map[string]string{"": "A C", "gpu": "A C E", "std": "A C D", "whole": "A C"},
			},
		} {
			if _, err := s.client.CoreV1().Nodes().Update(t.Context(), change.node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			check(change.when, change.want)
		}
	})
}
