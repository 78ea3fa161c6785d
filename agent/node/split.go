// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// reasonInGroups is why a rest without nodes is Ready.
const reasonInGroups = "NodesInGroups"

// errUnlisted is returned while the nodes of the cluster are not known.
var errUnlisted = errors.New("nodes of the cluster are not listed yet")

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

// parts are the nodes of a cluster by what they are shown as.
type parts struct {
	rest   []*corev1.Node
	groups map[string][]*corev1.Node
}

// partition parts nodes by a label. In the rest are those without it, those with a
// value that cannot be in a node's name, and those beyond the groups that a cluster
// may have: of more values the first by name are groups.
func partition(nodes []*corev1.Node, label string) parts {
	p := parts{groups: map[string][]*corev1.Node{}}
	for _, node := range nodes {
		if value := node.Labels[label]; wire.IsNodeGroup(value) && !virtual(node) {
			p.groups[value] = append(p.groups[value], node)
		} else {
			p.rest = append(p.rest, node)
		}
	}
	if names := p.names(); len(names) > wire.NodeGroupsMax {
		for _, name := range names[wire.NodeGroupsMax:] {
			p.rest = append(p.rest, p.groups[name]...)
			delete(p.groups, name)
		}
	}
	return p
}

// names of the groups, sorted.
func (p parts) names() []string { return slices.Sorted(maps.Keys(p.groups)) }

// GroupsOf returns the groups that there are, sorted, once the nodes have been
// listed; without a label to split by there are none.
func (w *Watcher) GroupsOf(ctx context.Context) ([]string, error) {
	select {
	case <-w.listed:
		return partition(w.Nodes(), w.config.SplitLabel).names(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errUnlisted, ctx.Err())
	}
}

// NodesOf returns the nodes of a group, those of the rest for "".
func (w *Watcher) NodesOf(group string) []*corev1.Node {
	p := partition(w.Nodes(), w.config.SplitLabel)
	if group == "" {
		return p.rest
	}
	return p.groups[group]
}

// summary is that of the cluster as one node. Where the cluster is split, it
// publishes the groups and returns the rest.
func (w *Watcher) summary(serverVersion string) wire.NodeSummary {
	nodes, taken := w.Nodes(), w.pods.book()
	whole := summarise(nodes, taken, serverVersion)
	if w.config.SplitLabel == "" {
		return whole
	}
	p := partition(nodes, w.config.SplitLabel)
	bodies := make(map[string][]byte, len(p.groups))
	for name, of := range p.groups {
		body, err := summarise(of, taken, serverVersion).Encode()
		if err != nil {
			w.config.Logger.Error(err, "cannot publish the summary of a group of nodes", "group", name)
			continue
		}
		bodies[name] = body
	}
	w.config.Groups.PublishGroups(bodies)
	rest := summarise(p.rest, taken, serverVersion)
	if len(p.rest) == 0 && len(p.groups) > 0 {
		rest.Conditions = restless(whole)
		rest.Capacity, rest.Allocatable = none(whole.Capacity), none(whole.Capacity)
	}
	rest.Split = &wire.NodeSplit{
		Label: w.config.SplitLabel, Groups: p.names(),
		Capacity: whole.Capacity, Allocatable: whole.Allocatable,
	}
	return rest
}

// none is nothing of every resource: a node keeps what it is not told of.
func none(of wire.Quantities) wire.Quantities {
	zero := make(wire.Quantities, len(of))
	for name := range of {
		zero[name] = "0"
	}
	return zero
}

// restless is the condition of a rest without nodes: as ready as the cluster is. It
// has room for nothing; a node that is not ready would lose the pods that were bound
// to it before the cluster was split.
func restless(whole wire.NodeSummary) []wire.NodeCondition {
	c := wire.NodeCondition{
		Type:    string(corev1.NodeReady),
		Status:  string(corev1.ConditionTrue),
		Reason:  reasonInGroups,
		Message: fmt.Sprintf("every node is in a group: %d of %d are ready", whole.Nodes.Ready, whole.Nodes.Total),
	}
	if whole.Nodes.Ready == 0 {
		c.Status, c.Reason = string(corev1.ConditionFalse), reasonNoneReady
	}
	return []wire.NodeCondition{c}
}
