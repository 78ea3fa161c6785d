// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestBySomeLabelsNodesCannotBeSplit(t *testing.T) {
	cases := map[string]struct {
		reason, label string
		ok            bool
	}{
		"a zone":                  {reason: "what it is for", label: "topology.kubernetes.io/zone", ok: true},
		"a pool":                  {reason: "what it is for", label: "cloud.google.com/gke-nodepool", ok: true},
		"of a plain name":         {reason: "an owner may label so", label: "pool", ok: true},
		"of an instance group":    {reason: "an installer labels so", label: "kops.k8s.io/instancegroup", ok: true},
		"nothing":                 {reason: "it is no label", label: ""},
		"a sentence":              {reason: "it is no label", label: "my pool"},
		"a name that is too long": {reason: "it is no label", label: strings.Repeat("a", 64)},
		"the hostname":            {reason: "it is the node's", label: "kubernetes.io/hostname"},
		"the operating system":    {reason: "it would attract DaemonSets", label: "kubernetes.io/os"},
		"the type":                {reason: "others know virtual nodes by it", label: "type"},
		"one of ours":             {reason: "it names the cluster", label: "spokelet.io/cluster"},
		"under one of ours":       {reason: "it is ours", label: "a.spokelet.io/b"},
		"a role":                  {reason: "who has one the hub says", label: "node-role.kubernetes.io/control-plane"},
		"a restricted one":        {reason: "pods are kept apart by it", label: "pci.node-restriction.kubernetes.io/x"},
		"a load balancer's":       {reason: "virtual nodes never have any", label: "node.kubernetes.io/exclude-from-external-load-balancers"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckSplitLabel(tc.label)
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrSplitLabel) {
				t.Errorf("%s: error %v", tc.reason, err)
			}
		})
	}
}

func TestWhatASplitMayBe(t *testing.T) {
	many := make([]string, NodeGroupsMax+1)
	for i := range many {
		many[i] = fmt.Sprintf("g%03d", i)
	}
	cases := map[string]struct {
		reason string
		split  NodeSplit
		ok     bool
	}{
		"two groups":         {reason: "as an agent says it", split: NodeSplit{Label: "pool", Groups: []string{"a", "b"}}, ok: true},
		"no groups":          {reason: "no node has the label yet", split: NodeSplit{Label: "pool"}, ok: true},
		"another's label":    {reason: "the hub labels so", split: NodeSplit{Label: "type", Groups: []string{"a"}}},
		"not sorted":         {reason: "equal clusters say equal things", split: NodeSplit{Label: "pool", Groups: []string{"b", "a"}}},
		"twice":              {reason: "it is one node", split: NodeSplit{Label: "pool", Groups: []string{"a", "a"}}},
		"a dot":              {reason: "another cluster's node may have the name", split: NodeSplit{Label: "pool", Groups: []string{"a.b"}}},
		"nothing":            {reason: "it is the cluster's own node", split: NodeSplit{Label: "pool", Groups: []string{""}}},
		"more than the most": {reason: "each is a port and a lease", split: NodeSplit{Label: "pool", Groups: many}},
		"an exponent":        {reason: "it costs its reader", split: NodeSplit{Label: "pool", Capacity: Quantities{"cpu": "1e9"}}},
		"features":           {reason: "of the whole cluster", split: NodeSplit{Label: "pool", DeclaredFeatures: lettered(NodeSummaryMaxFeatures)}, ok: true},
		"many features":      {reason: "a Node has a size", split: NodeSplit{Label: "pool", DeclaredFeatures: lettered(NodeSummaryMaxFeatures + 1)}},
		"an odd system":      {reason: "it becomes a label", split: NodeSplit{Label: "pool", System: NodeSystem{Arch: "-"}}},
		"less than nothing":  {reason: "nobody has that", split: NodeSplit{Label: "pool", Allocatable: Quantities{"cpu": "-1"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := summary()
			s.Split = &tc.split
			body, err := s.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err = DecodeNodeSummary(body); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrNodeSummary) {
				t.Errorf("%s: error %v", tc.reason, err)
			}
			if _, err := DecodeNodeGroup("a", body); !errors.Is(err, ErrNodeSummary) {
				t.Errorf("a group that is split itself: error %v", err)
			}
		})
	}
}

func TestASummaryWithoutGroupsIsAsItWas(t *testing.T) {
	body, err := summary().Encode()
	if err != nil || strings.Contains(string(body), "split") {
		t.Errorf("%v, %s", err, body)
	}
	if whole := summary().Whole(); !cmp.Equal(whole.Capacity, summary().Capacity) {
		t.Errorf("the whole has %v", whole.Capacity)
	}
}

func TestNamesOfVirtualNodes(t *testing.T) {
	for name, want := range map[string][2]string{"spoke1": {"spoke1", ""}, "spoke1.gpu": {"spoke1", "gpu"}} {
		cluster, group := ParseNodeName(name)
		if cluster != want[0] || group != want[1] || NodeName(cluster, group) != name {
			t.Errorf("%s: %q and %q", name, cluster, group)
		}
	}
}

func TestAPodOfAGroup(t *testing.T) {
	p := podOf("ns", "p", "u")
	p.Group = "gpu"
	body, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodePod("ns/p", body)
	if diff := cmp.Diff(p, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// What an agent that knows of no groups reads.
	var old struct {
		Pod corev1.Pod `json:"pod"`
	}
	if err := json.Unmarshal(body, &old); err != nil || old.Pod.Name != "" || len(old.Pod.Spec.Containers) > 0 {
		t.Errorf("an older agent reads %v, %v", old, err)
	}
	plain, err := podOf("ns", "p", "u").Encode()
	if diff := cmp.Diff(string(encoded(t, podOf("ns", "p", "u"))), string(plain)); diff != "" || err != nil {
		t.Errorf("a pod of no group is not as it was: %v\n%s", err, diff)
	}
	for reason, body := range map[string]string{
		"no pod":         `{"group":"gpu"}`,
		"no group":       `{"grouped":{"metadata":{"namespace":"ns","name":"p","uid":"u"}}}`,
		"no DNS label":   `{"group":"a/b","grouped":{"metadata":{"namespace":"ns","name":"p","uid":"u"}}}`,
		"of another key": `{"group":"gpu","grouped":{"metadata":{"namespace":"ns","name":"q","uid":"u"}}}`,
	} {
		if _, err := DecodePod("ns/p", []byte(body)); !errors.Is(err, ErrInvalidPod) {
			t.Errorf("%s: error %v", reason, err)
		}
	}
}
