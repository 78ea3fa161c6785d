// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// Why a rest is Ready that has no ready node.
const (
	// reasonInGroups: it has no nodes at all.
	reasonInGroups = "NodesInGroups"
	// reasonReadyInGroups: those that it has are not ready.
	reasonReadyInGroups = "ReadyNodesInGroups"
)

// errNodesNotListed is returned while the nodes of the cluster are not known.
var errNodesNotListed = errors.New("nodes of the cluster are not listed yet")

// GroupPublisher takes the encoded wire.NodeSummary of every group of nodes that
// there is. It must not block, and is called before the Publisher, whose summary
// names the groups.
type GroupPublisher interface {
	PublishGroups(summaries map[string][]byte)
}

// GroupPublisherFunc is a GroupPublisher.
type GroupPublisherFunc func(summaries map[string][]byte)

// PublishGroups calls f.
func (f GroupPublisherFunc) PublishGroups(summaries map[string][]byte) { f(summaries) }

// nodeGroups are the nodes of a cluster by what they are shown as.
type nodeGroups struct {
	rest   []*corev1.Node
	groups map[string][]*corev1.Node
	// overflow are the values, sorted, that would be groups if there were not too many.
	overflow []string
}

// groupByLabel parts nodes by a label. In the rest are those without it, those with a
// value that cannot be in a node's name, and those beyond the groups that a cluster
// may have: of more values the first by name are groups.
func groupByLabel(nodes []*corev1.Node, label string) nodeGroups {
	p := nodeGroups{groups: map[string][]*corev1.Node{}}
	for _, node := range nodes {
		if value := node.Labels[label]; wire.IsNodeGroup(value) && !isVirtual(node) {
			p.groups[value] = append(p.groups[value], node)
		} else {
			p.rest = append(p.rest, node)
		}
	}
	if names := p.names(); len(names) > wire.NodeGroupsMax {
		p.overflow = names[wire.NodeGroupsMax:]
		for _, name := range p.overflow {
			p.rest = append(p.rest, p.groups[name]...)
			delete(p.groups, name)
		}
	}
	return p
}

// names of the groups, sorted.
func (p nodeGroups) names() []string { return slices.Sorted(maps.Keys(p.groups)) }

// GroupNames returns the groups that there are, sorted; without a label to split by
// there are none. It does not wait: until the nodes have been listed it is an error.
func (w *Watcher) GroupNames() ([]string, error) {
	select {
	case <-w.listed:
		return groupByLabel(w.Nodes(), w.config.SplitLabel).names(), nil
	default:
		return nil, errNodesNotListed
	}
}

// NodesOf returns the nodes of a group, those of the rest for "".
func (w *Watcher) NodesOf(group string) []*corev1.Node {
	p := groupByLabel(w.Nodes(), w.config.SplitLabel)
	if group == "" {
		return p.rest
	}
	return p.groups[group]
}

// clusterSummary is that of the cluster as one node. Where the cluster is split, it
// publishes the groups and returns the rest.
func (w *Watcher) clusterSummary(serverVersion string) wire.NodeSummary {
	nodes, taken := w.Nodes(), w.pods.sumRequests()
	whole := summarizeNodes(nodes, taken, serverVersion)
	if w.config.SplitLabel == "" {
		return whole
	}
	p := groupByLabel(nodes, w.config.SplitLabel)
	bodies := make(map[string][]byte, len(p.groups))
	for name, of := range p.groups {
		body, err := summarizeNodes(of, taken, serverVersion).Encode()
		if err != nil {
			w.config.Logger.Error(err, "cannot publish the summary of a group of nodes", "group", name)
			continue
		}
		bodies[name] = body
	}
	w.config.Groups.PublishGroups(bodies)
	rest := summarizeRest(p, taken, whole)
	appendOverflow(rest.Conditions, p.overflow)
	rest.Split = &wire.NodeSplit{
		Label: w.config.SplitLabel, Groups: p.names(),
		Capacity: whole.Capacity, Allocatable: whole.Allocatable, DeclaredFeatures: whole.DeclaredFeatures, System: whole.System,
	}
	return rest
}

// summarizeRest is the summary of the rest. Where none of its nodes is ready but the cluster
// has groups, it has room for nothing, and is as ready as the cluster, with the features
// of that: what is bound to it may run anywhere.
func summarizeRest(p nodeGroups, taken requestsByNode, whole wire.NodeSummary) wire.NodeSummary {
	rest := summarizeNodes(p.rest, taken, whole.KubernetesVersion)
	if rest.Nodes.Ready > 0 || len(p.groups) == 0 {
		return rest
	}
	rest.Conditions = restCondition(p.rest, rest.Nodes, whole.Nodes)
	capacity := zeroQuantities(whole.Capacity)
	maps.Copy(capacity, rest.Capacity)
	rest.Capacity, rest.Allocatable = capacity, zeroQuantities(whole.Capacity)
	rest.DeclaredFeatures = whole.DeclaredFeatures
	return rest
}

// maxOverflowMessage bounds what a condition says of values that are no groups, and what it says
// besides: together they are a line. A value with the words around it is less.
const maxOverflowMessage = 128

// appendOverflow adds to what the rest says of its readiness which values are no groups, the
// first of them by name. It changes with the values and with nothing else.
func appendOverflow(conditions []wire.NodeCondition, beyond []string) {
	i := slices.IndexFunc(conditions, func(c wire.NodeCondition) bool { return c.Type == string(corev1.NodeReady) })
	if i < 0 || len(beyond) == 0 {
		return
	}
	text := func(n int) string {
		s := fmt.Sprintf("; beyond %d values, shown here: %s", wire.NodeGroupsMax, strings.Join(beyond[:n], ", "))
		if n < len(beyond) {
			s += fmt.Sprintf(" and %d more", len(beyond)-n)
		}
		return s
	}
	n := 1
	for n < len(beyond) && len(text(n+1)) <= maxOverflowMessage {
		n++
	}
	c := &conditions[i]
	c.Message = wire.Line(c.Message[:min(len(c.Message), maxOverflowMessage)] + text(n))
}

// zeroQuantities is nothing of every resource: a node keeps what it is not told of.
func zeroQuantities(of wire.Quantities) wire.Quantities {
	zero := make(wire.Quantities, len(of))
	for name := range of {
		zero[name] = "0"
	}
	return zero
}

// restCondition is the condition of a rest without ready nodes. A node of the hub that is
// not ready loses the pods that are bound to it, and those from before the cluster was
// split run on machines of groups; a new machine is in the rest, and not ready, until it
// has its label.
func restCondition(nodes []*corev1.Node, rest, whole wire.NodeCounts) []wire.NodeCondition {
	c := wire.NodeCondition{
		Type:    string(corev1.NodeReady),
		Status:  string(corev1.ConditionTrue),
		Reason:  reasonInGroups,
		Message: fmt.Sprintf("every node is in a group: %d of %d are ready", whole.Ready, whole.Total),
	}
	if rest.Total > 0 {
		c.Reason = reasonReadyInGroups
		c.Message = fmt.Sprintf("%d of %d nodes in groups are ready, %d of %d in none",
			whole.Ready-rest.Ready, whole.Total-rest.Total, rest.Ready, rest.Total)
		if reasons := conditionReasons(nodes, corev1.NodeReady); len(reasons) > 0 {
			c.Message = wire.Line(c.Message + ": " + strings.Join(reasons, ", "))
		}
	}
	if whole.Ready == 0 {
		c.Status, c.Reason = string(corev1.ConditionFalse), reasonNoneReady
	}
	return []wire.NodeCondition{c}
}
