// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ConditionNodeLabelled is the condition of a ManagedCluster that says whether its
	// nodes have the labels kubernetes.io/os and kubernetes.io/arch, where the cluster's
	// own agree on them. A cluster whose nodes always had them has none.
	ConditionNodeLabelled = "SpokeletNodeLabelled"

	// ReasonLabelled: nothing keeps the labels from the nodes.
	ReasonLabelled = "Labelled"

	// ReasonNotLabelled: DaemonSets of the hub would wait for a pod on the nodes.
	ReasonNotLabelled = "DaemonSetsWouldWait"
)

// systemLabels is whether a Node has the labels of its system.
type systemLabels struct {
	// applied: it has them, and keeps them. That a DaemonSet comes that would have been in
	// the way takes nothing from pods that choose nodes by the labels.
	applied bool
	// objection is why it has not, for people. Until it is known, it may be empty.
	objection string
	known     bool
}

// decideSystemLabels decides whether the Node gets the labels that its cluster's nodes
// agree on; n.mu is held.
func (n *virtualNode) decideSystemLabels() {
	v := &n.state
	if v.system.applied || v.summary == nil {
		return
	}
	given := *v
	given.system.applied = true
	have, more := v.labels(), given.labels()
	switch objector := n.provider.config.DaemonSets; {
	case maps.Equal(have, more):
		v.system = systemLabels{known: true}
	case objector == nil:
		v.system = systemLabels{applied: true, known: true}
	default:
		text, known := objector.Objection(have, more)
		v.system = systemLabels{applied: known && text == "", objection: text, known: known}
	}
}

// DaemonSetsChanged has the labels of all nodes considered again.
func (p *Provider) DaemonSetsChanged() {
	p.mu.Lock()
	nodes := slices.Collect(maps.Values(p.nodes))
	p.mu.Unlock()
	for _, n := range nodes {
		before := n.systemLabels()
		n.update(func(*nodeState) {})
		if n.systemLabels() != before {
			p.requeueRecord(n.cluster)
		}
	}
}

func (n *virtualNode) systemLabels() systemLabels {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state.system
}

// clusterSystemLabels is that of the first of a cluster's nodes that lacks the labels,
// else of its own.
func (p *Provider) clusterSystemLabels(cluster string) systemLabels {
	p.mu.Lock()
	defer p.mu.Unlock()
	base, ok := p.nodes[cluster]
	if !ok {
		return systemLabels{}
	}
	found := base.systemLabels()
	for _, group := range slices.Sorted(maps.Keys(base.groups)) {
		if l := base.groups[group].systemLabels(); found.objection == "" && l.objection != "" {
			found = l
		}
	}
	return found
}

// systemLabelsCondition says what keeps the labels from the nodes of a cluster. While that is not
// known, the condition stays as it is.
func systemLabelsCondition(l systemLabels) recordCondition {
	s := recordCondition{fieldOwner: fieldOwner + "-system", action: "LabelNode", condition: metav1.Condition{Type: ConditionNodeLabelled}}
	c := &s.condition
	switch {
	case l.objection != "":
		c.Status, c.Reason = metav1.ConditionFalse, ReasonNotLabelled
		c.Message = fmt.Sprintf("the node has not the labels %s and %s, unless the ManagedCluster has: %s",
			corev1.LabelOSStable, corev1.LabelArchStable, l.objection)
	case l.known:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonLabelled, "nothing keeps the labels of the system from the node"
	}
	return s
}

// hadSystemLabels reports whether the Node has a label of its system because of its cluster.
// A label that the record names, or by whose values the cluster is split, says nothing of
// that: the Node has it in any case.
func (v nodeState) hadSystemLabels() bool {
	given := maps.Clone(v.clusterLabels)
	maps.DeleteFunc(given, func(name, _ string) bool {
		_, named := v.cluster.Labels[name]
		return named || v.group != "" && name == v.cluster.Consent.SplitLabel
	})
	return given[corev1.LabelOSStable] != "" || given[corev1.LabelArchStable] != ""
}
