// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// NodeGroupKind is the kind under which the NodeSummary of each group of nodes
	// travels in Sync, agent to hub. Its key is the group's value of the label.
	NodeGroupKind = "node.group"

	// NodeGroupsMax bounds the groups of a cluster.
	NodeGroupsMax = 64

	// AnnotationSplitLabel of a ManagedCluster names the label by which its nodes may be
	// shown in groups. Without it the cluster is one node.
	AnnotationSplitLabel = "spokelet.io/split-label"
)

// ErrSplitLabel: a cluster may not be split by that label.
var ErrSplitLabel = errors.New("nodes cannot be split by the label")

// NodeSplit says how the nodes of a cluster are shown: those that have a label
// with one of some values as a group each, the rest as the cluster's node.
type NodeSplit struct {
	// Label is the name of the label, such as "topology.kubernetes.io/zone".
	Label string `json:"label"`

	// Groups are the values that nodes have now, sorted. One that is not here has no
	// node.
	Groups []string `json:"groups,omitempty"`

	// Capacity, Allocatable, DeclaredFeatures and System are those of the whole cluster,
	// groups and rest.
	Capacity         Quantities `json:"capacity,omitempty"`
	Allocatable      Quantities `json:"allocatable,omitempty"`
	DeclaredFeatures []string   `json:"declaredFeatures,omitempty"`
	System           NodeSystem `json:"system,omitzero"`
}

func (s *NodeSplit) validate() error {
	if s == nil {
		return nil
	}
	if err := CheckSplitLabel(s.Label); err != nil {
		return err
	}
	if len(s.Groups) > NodeGroupsMax {
		return fmt.Errorf("%d groups are more than %d", len(s.Groups), NodeGroupsMax)
	}
	last := ""
	for _, group := range s.Groups {
		if !IsNodeGroup(group) || group <= last {
			return fmt.Errorf("group %q is not the next DNS label", clip(group))
		}
		last = group
	}
	for _, q := range []Quantities{s.Capacity, s.Allocatable} {
		if _, err := q.ResourceList(); err != nil {
			return err
		}
	}
	return errors.Join(validFeatures(s.DeclaredFeatures), s.System.validate())
}

// Whole is what the whole cluster has: of one that is split, groups and rest.
func (s NodeSummary) Whole() NodeSplit {
	if s.Split != nil {
		return *s.Split
	}
	return NodeSplit{
		Capacity: s.Capacity, Allocatable: s.Allocatable, DeclaredFeatures: s.DeclaredFeatures, System: s.System,
	}
}

// DecodeNodeGroup is DecodeNodeSummary for the summary of a group, under its key.
func DecodeNodeGroup(group string, body []byte) (NodeSummary, error) {
	if !IsNodeGroup(group) {
		return NodeSummary{}, fmt.Errorf("%w: group %q is not a DNS label", ErrNodeSummary, clip(group))
	}
	s, err := DecodeNodeSummary(body)
	if err == nil && s.Split != nil {
		return NodeSummary{}, fmt.Errorf("%w: group %s is split itself", ErrNodeSummary, group)
	}
	return s, err
}

// IsNodeGroup reports whether a value of the label makes a group: it becomes part
// of a node's name.
func IsNodeGroup(value string) bool { return len(validation.IsDNS1123Label(value)) == 0 }

// claimed are labels of a virtual node that are the hub's to set, and claimedDomains
// those under which a label says what a node may have, which is for the hub's
// administrators to say.
var (
	claimed = []string{
		"type", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		corev1.LabelOSStable, corev1.LabelHostname,
		corev1.LabelNodeExcludeBalancers, "node.kubernetes.io/exclude-disruption",
	}
	claimedDomains = []string{"spokelet.io", "node-restriction.kubernetes.io", "node-role.kubernetes.io"}
)

// CheckSplitLabel tells why nodes cannot be split by a label: an ErrSplitLabel.
func CheckSplitLabel(name string) error {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Errorf("%w: %q: %s", ErrSplitLabel, clip(name), problems[0])
	}
	domain, _, _ := strings.Cut(name, "/")
	under := func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
	if slices.Contains(claimed, name) || slices.ContainsFunc(claimedDomains, under) {
		return fmt.Errorf("%w: %q is for the hub to set", ErrSplitLabel, name)
	}
	return nil
}

// NodeName is the name of a virtual node: the cluster's, or "<cluster>.<group>".
// The name of a cluster has no dot, so that no two nodes have the same.
func NodeName(cluster, group string) string {
	if group == "" {
		return cluster
	}
	return cluster + "." + group
}

// SplitLabelHeader names the label by which the hub shows the cluster in groups, to the
// agent's door "node". Without it, or with another than the agent's, the figures at the
// root are those of the whole cluster.
const SplitLabelHeader = "Spokelet-Split-Label"

// NodeGroupPath is where an agent's door "node" serves the figures of a group; those
// of the rest are served at the root.
func NodeGroupPath(group string) string { return "/groups/" + group }

// ParseNodeName is the inverse of NodeName; group is empty for a cluster's node.
func ParseNodeName(name string) (cluster, group string) {
	cluster, group, _ = strings.Cut(name, ".")
	return cluster, group
}
