// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spokelet/spokelet/api/wire"
)

// summarizedConditions are the condition types of the summary, with the reason that a
// cluster has for each when its nodes differ in theirs.
var summarizedConditions = map[corev1.NodeConditionType]string{
	corev1.NodeReady:              "NodesReady",
	corev1.NodeMemoryPressure:     "NodesUnderMemoryPressure",
	corev1.NodeDiskPressure:       "NodesUnderDiskPressure",
	corev1.NodePIDPressure:        "NodesUnderPIDPressure",
	corev1.NodeNetworkUnavailable: "NodesWithoutNetwork",
}

const (
	reasonNoNodes   = "NoNodes"
	reasonNoneReady = "NoReadyNodes"
)

// summarizeNodes returns what the nodes of a cluster are together; taken is what pods
// have of them already, and serverVersion that of its API server. The order of
// the nodes does not matter. Virtual nodes are left out.
func summarizeNodes(nodes []*corev1.Node, taken requestsByNode, serverVersion string) wire.NodeSummary {
	nodes = slices.DeleteFunc(slices.Clone(nodes), isVirtual)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	ready := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !isReady(n) })
	capacity := sumResources(nodes, func(n *corev1.Node) corev1.ResourceList { return n.Status.Capacity })
	return wire.NodeSummary{
		KubernetesVersion: serverVersion,
		Nodes:             wire.NodeCounts{Total: len(nodes), Ready: len(ready)},
		Capacity:          wire.QuantitiesOf(capacity),
		Allocatable:       wire.QuantitiesOf(allocatable(ready, taken, capacity)),
		Conditions:        conditions(nodes, ready),
		NodeInfo:          commonNodeInfo(nodes),
		DeclaredFeatures:  commonFeatures(ready),
		System:            commonSystem(nodes, ready),
		Zones:             topologyValues(nodes, corev1.LabelTopologyZone),
		Regions:           topologyValues(nodes, corev1.LabelTopologyRegion),
	}
}

func isReady(node *corev1.Node) bool {
	c := getCondition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func getCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func sumResources(nodes []*corev1.Node, of func(*corev1.Node) corev1.ResourceList) corev1.ResourceList {
	total := corev1.ResourceList{}
	for _, node := range nodes {
		for name, quantity := range of(node) {
			have, ok := total[name]
			if !ok {
				have.Format = quantityFormat(name)
			}
			have.Add(quantity)
			have.Format = quantityFormat(name)
			total[name] = have
		}
	}
	return total
}

// quantityFormat fixes how a sum is written: a quantity keeps the format of whichever
// node came first, and the same sum would have two forms.
func quantityFormat(name corev1.ResourceName) resource.Format {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return resource.BinarySI
	default:
		return resource.DecimalSI
	}
}

// allocatable is what is left for the hub's pods: it counts those itself.
func allocatable(ready []*corev1.Node, taken requestsByNode, capacity corev1.ResourceList) corev1.ResourceList {
	open := slices.DeleteFunc(slices.Clone(ready), isCordoned)
	total := sumResources(open, func(n *corev1.Node) corev1.ResourceList { return remaining(n.Status.Allocatable, taken[n.Name]) })
	for name := range capacity {
		if _, ok := total[name]; !ok {
			total[name] = resource.Quantity{Format: quantityFormat(name)}
		}
	}
	return total
}

// remaining is what is left of one node, and never less than nothing: a node from
// which more was taken than it had takes nothing from the others.
func remaining(of, taken corev1.ResourceList) corev1.ResourceList {
	rest := of.DeepCopy()
	for name, have := range rest {
		part, ok := taken[name]
		if !ok {
			continue
		}
		if have.Sub(part); have.Sign() < 0 {
			have = resource.Quantity{Format: have.Format}
		}
		rest[name] = have
	}
	return rest
}

func isCordoned(node *corev1.Node) bool { return node.Spec.Unschedulable }

func conditions(nodes, ready []*corev1.Node) []wire.NodeCondition {
	all := []wire.NodeCondition{readyCondition(nodes, ready)}
	for kind := range summarizedConditions {
		if c, ok := pressureCondition(kind, ready); ok && kind != corev1.NodeReady {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b wire.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return all
}

// readyCondition is true while any node is ready: the cluster takes work.
func readyCondition(nodes, ready []*corev1.Node) wire.NodeCondition {
	c := wire.NodeCondition{
		Type:    string(corev1.NodeReady),
		Status:  string(corev1.ConditionTrue),
		Reason:  summarizedConditions[corev1.NodeReady],
		Message: fmt.Sprintf("%d of %d nodes are ready", len(ready), len(nodes)),
	}
	if n := count(ready, isCordoned); n > 0 {
		c.Message += fmt.Sprintf(", %d of them cordoned", n)
	}
	switch {
	case len(nodes) == 0:
		c.Status, c.Reason, c.Message = string(corev1.ConditionFalse), reasonNoNodes, "the cluster has no nodes"
	case len(ready) == 0:
		c.Status, c.Reason = string(corev1.ConditionFalse), reasonNoneReady
		if reasons := conditionReasons(nodes, corev1.NodeReady); len(reasons) > 0 {
			c.Message = wire.Line(c.Message + ": " + strings.Join(reasons, ", "))
		}
	}
	return c
}

func count(nodes []*corev1.Node, is func(*corev1.Node) bool) int {
	n := 0
	for _, node := range nodes {
		if is(node) {
			n++
		}
	}
	return n
}

// pressureCondition is true only when every ready node has the problem: as long as one
// has not, the cluster takes work, and the hub's taint for the condition would
// keep it away. ok is false when no ready node states the condition.
func pressureCondition(kind corev1.NodeConditionType, ready []*corev1.Node) (c wire.NodeCondition, ok bool) {
	stated, bad, unknown := 0, 0, 0
	for _, node := range ready {
		own := getCondition(node, kind)
		if own == nil {
			continue
		}
		stated++
		switch own.Status {
		case corev1.ConditionTrue:
			bad++
		case corev1.ConditionUnknown:
			unknown++
		case corev1.ConditionFalse:
		}
	}
	if stated == 0 {
		return c, false
	}
	c = wire.NodeCondition{Type: string(kind), Status: string(corev1.ConditionFalse), Reason: summarizedConditions[kind]}
	switch {
	case bad == len(ready):
		c.Status = string(corev1.ConditionTrue)
	case bad+unknown == len(ready):
		c.Status = string(corev1.ConditionUnknown)
	}
	if common := conditionReasons(ready, kind); len(common) == 1 && wire.IsReason(common[0]) {
		c.Reason = common[0]
	}
	c.Message = fmt.Sprintf("%s is true on %d of %d ready nodes", kind, bad, len(ready))
	return c, true
}

// conditionReasons are the distinct reasons that nodes give for a condition, sorted.
func conditionReasons(nodes []*corev1.Node, kind corev1.NodeConditionType) []string {
	set := map[string]struct{}{}
	for _, node := range nodes {
		if c := getCondition(node, kind); c != nil && c.Reason != "" {
			set[c.Reason] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// commonInfo is what nodes have in common, empty for no nodes, else Mixed.
func commonInfo(nodes []*corev1.Node, field func(corev1.NodeSystemInfo) string) string {
	first := ""
	for i, node := range nodes {
		switch value := field(node.Status.NodeInfo); {
		case i == 0:
			first = value
		case value != first:
			return wire.Mixed
		}
	}
	return first
}

// commonSystem is what the ready nodes agree on. While none is ready it is what all do: that
// the last one is away for a moment changes no label.
func commonSystem(nodes, ready []*corev1.Node) wire.NodeSystem {
	if len(ready) == 0 {
		ready = nodes
	}
	of := func(field func(corev1.NodeSystemInfo) string) string {
		value := commonInfo(ready, field)
		if value == wire.Mixed || !wire.IsPlatform(value) {
			return ""
		}
		return value
	}
	return wire.NodeSystem{
		OS:   of(func(i corev1.NodeSystemInfo) string { return i.OperatingSystem }),
		Arch: of(func(i corev1.NodeSystemInfo) string { return i.Architecture }),
	}
}

func commonNodeInfo(nodes []*corev1.Node) wire.NodeInfo {
	of := func(field func(corev1.NodeSystemInfo) string) string { return wire.Line(commonInfo(nodes, field)) }
	return wire.NodeInfo{
		Architecture:            of(func(i corev1.NodeSystemInfo) string { return i.Architecture }),
		OperatingSystem:         of(func(i corev1.NodeSystemInfo) string { return i.OperatingSystem }),
		OSImage:                 of(func(i corev1.NodeSystemInfo) string { return i.OSImage }),
		KernelVersion:           of(func(i corev1.NodeSystemInfo) string { return i.KernelVersion }),
		ContainerRuntimeVersion: of(func(i corev1.NodeSystemInfo) string { return i.ContainerRuntimeVersion }),
		KubeletVersion:          of(func(i corev1.NodeSystemInfo) string { return i.KubeletVersion }),
	}
}

func topologyValues(nodes []*corev1.Node, label string) []string {
	set := map[string]struct{}{}
	for _, node := range nodes {
		if value := node.Labels[label]; value != "" {
			set[value] = struct{}{}
		}
	}
	sorted := slices.Sorted(maps.Keys(set))
	return sorted[:min(len(sorted), wire.NodeSummaryMaxTopology)]
}
