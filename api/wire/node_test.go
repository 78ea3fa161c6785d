// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func summary() NodeSummary {
	return NodeSummary{
		KubernetesVersion: "v1.37.2+k3s1",
		Nodes:             NodeCounts{Total: 3, Ready: 2},
		Capacity:          Quantities{"cpu": "1500m", "memory": "16Gi", "nvidia.com/gpu": "2"},
		Allocatable:       Quantities{"cpu": "1", "memory": "0"},
		Conditions: []NodeCondition{
			{Type: "MemoryPressure", Status: "Unknown"},
			{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "2 of 3 nodes are ready"},
		},
		NodeInfo: NodeInfo{Architecture: Mixed, OSImage: "Debian GNU/Linux 12 (bookworm)"},
		System:   NodeSystem{OS: "linux"},
		Zones:    []string{"a", "b"},

		DeclaredFeatures: []string{"InPlacePodVerticalScaling", "UserNamespaces/idmap"},
	}
}

func TestASummarySurvivesTheWay(t *testing.T) {
	body, err := summary().Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeNodeSummary(body)
	if err != nil {
		t.Fatalf("DecodeNodeSummary(): %v", err)
	}
	if diff := cmp.Diff(summary(), got); diff != "" {
		t.Errorf("after the way (-want +got):\n%s", diff)
	}
}

func TestASummaryOfANewerAgentIsRead(t *testing.T) {
	got, err := DecodeNodeSummary([]byte(`{"nodes":{"total":1,"ready":1,"cordoned":1},"gadgets":[1]}`))
	if err != nil || got.Nodes != (NodeCounts{Total: 1, Ready: 1}) {
		t.Errorf("DecodeNodeSummary(): got %+v, %v", got, err)
	}
}

// lettered are so many features, sorted.
func lettered(n int) (names []string) {
	for i := range n {
		names = append(names, "F"+strings.Repeat("a", i))
	}
	return names
}

func TestASummaryThatNoAgentSendsIsRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*NodeSummary)
	}{
		"more ready than there are": {reason: "a part is not more than the whole", change: func(s *NodeSummary) { s.Nodes.Ready = 4 }},
		"negative count":            {reason: "there are no fewer than none", change: func(s *NodeSummary) { s.Nodes.Ready = -1 }},
		"no version":                {reason: "readers of a Node parse it", change: func(s *NodeSummary) { s.KubernetesVersion = "new" }},
		"long version":              {reason: "it is written into a Node", change: func(s *NodeSummary) { s.KubernetesVersion = "v1.2.3-" + strings.Repeat("a", 99) }},
		"resource name":             {reason: "the API server refuses it", change: func(s *NodeSummary) { s.Capacity["a b"] = "1" }},
		"negative quantity":         {reason: "the API server refuses it", change: func(s *NodeSummary) { s.Capacity["cpu"] = "-1" }},
		"exponent":                  {reason: "its parser would need as many digits", change: func(s *NodeSummary) { s.Capacity["cpu"] = "1e999999999" }},
		"long quantity":             {reason: "no cluster is so large", change: func(s *NodeSummary) { s.Allocatable["cpu"] = strings.Repeat("9", 99) }},
		"many resources": {reason: "a Node has a size", change: func(s *NodeSummary) {
			for i := range 200 {
				s.Capacity["r"+strings.Repeat("a", i%60)+string(rune('a'+i%26))+strings.Repeat("b", i/60)] = "1"
			}
		}},
		"unsorted conditions": {reason: "each type is there once", change: func(s *NodeSummary) { s.Conditions = append(s.Conditions, s.Conditions[0]) }},
		"odd status":          {reason: "there are three", change: func(s *NodeSummary) { s.Conditions[0].Status = "true" }},
		"odd reason":          {reason: "a reason is a word", change: func(s *NodeSummary) { s.Conditions[0].Reason = "no reason" }},
		"control characters":  {reason: "people read it in a terminal", change: func(s *NodeSummary) { s.Conditions[0].Message = "\x1b[2J" }},
		"long text":           {reason: "a Node has a size", change: func(s *NodeSummary) { s.NodeInfo.OSImage = strings.Repeat("x", 300) }},
		"odd system":          {reason: "it becomes a label", change: func(s *NodeSummary) { s.System.OS = "a b" }},
		"long architecture":   {reason: "it becomes a label", change: func(s *NodeSummary) { s.System.Arch = strings.Repeat("x", 64) }},
		"odd zone":            {reason: "it becomes a label", change: func(s *NodeSummary) { s.Zones = []string{"a b"} }},
		"empty region":        {reason: "it becomes a label", change: func(s *NodeSummary) { s.Regions = []string{""} }},
		"many zones":          {reason: "a Node has a size", change: func(s *NodeSummary) { s.Zones = make([]string, NodeSummaryMaxTopology+1) }},
		"odd feature":         {reason: "the API server refuses it", change: func(s *NodeSummary) { s.DeclaredFeatures = []string{"a b"} }},
		"long feature":        {reason: "a Node has a size", change: func(s *NodeSummary) { s.DeclaredFeatures = []string{strings.Repeat("A", 129)} }},
		"unsorted features":   {reason: "the API server refuses them", change: func(s *NodeSummary) { s.DeclaredFeatures = []string{"B", "A"} }},
		"a feature twice":     {reason: "the API server refuses it", change: func(s *NodeSummary) { s.DeclaredFeatures = []string{"A", "A"} }},
		"many features":       {reason: "a Node has a size", change: func(s *NodeSummary) { s.DeclaredFeatures = lettered(NodeSummaryMaxFeatures + 1) }},
		"too long altogether": {reason: "a message has a size", change: func(s *NodeSummary) { s.NodeInfo.OSImage = strings.Repeat("x", NodeSummaryMaxBytes) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := summary()
			tc.change(&s)
			body, err := s.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := DecodeNodeSummary(body); !errors.Is(err, ErrNodeSummary) {
				t.Errorf("%s: got %v, want ErrNodeSummary", tc.reason, err)
			}
		})
	}
}

func TestLineMakesWhatASummaryMayHold(t *testing.T) {
	for _, text := range []string{"", "plain", "a\nb\x00c", strings.Repeat("ä", 300), "\xff\xfe", "x\ufffdy"} {
		if got := Line(text); !printable(got) {
			t.Errorf("Line(%q) = %q, which is refused", text, got)
		}
	}
}

func FuzzDecodeNodeSummary(f *testing.F) {
	body, err := summary().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"nodes":{},"capacity":{"cpu":"1e9"}}`))
	f.Add([]byte(`{"conditions":[{"type":"Ready","status":"True"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := DecodeNodeSummary(body)
		if err != nil {
			if !errors.Is(err, ErrNodeSummary) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		whole := s.Whole()
		for _, group := range whole.Groups {
			if cluster, of := ParseNodeName(NodeName("spoke1", group)); cluster != "spoke1" || of != group || group == "" {
				t.Fatalf("group %q makes the name of another node", group)
			}
		}
		for _, q := range []Quantities{s.Capacity, s.Allocatable, whole.Capacity, whole.Allocatable} {
			list, err := q.ResourceList()
			if err != nil {
				t.Fatalf("an accepted quantity is refused later: %v", err)
			}
			for name, quantity := range list {
				if quantity.Sign() < 0 {
					t.Fatalf("%s is negative: %s", name, quantity.String())
				}
			}
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatalf("an accepted summary cannot be encoded: %v", err)
		}
		if len(again) <= NodeSummaryMaxBytes {
			if _, err := DecodeNodeSummary(again); err != nil {
				t.Fatalf("an accepted summary is refused later: %v", err)
			}
		}
	})
}
