// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
)

const (
	// NodeSummaryKind is the kind under which a NodeSummary travels in Sync.
	NodeSummaryKind = "node.summary"

	// NodeSummaryKey is the key of the one NodeSummary of a cluster.
	NodeSummaryKey = "node"

	// NodeSummaryMaxBytes bounds an encoded NodeSummary.
	NodeSummaryMaxBytes = 64 << 10

	// NodeSummaryMaxTopology bounds the zones and the regions.
	NodeSummaryMaxTopology = 256

	// Mixed stands for a value that is not the same on every node.
	Mixed = "mixed"

	// LabelCluster of a virtual Node names its cluster.
	LabelCluster = "spokelet.io/cluster"
)

// What an answer with figures says of itself, beside what a kubelet says.
const (
	// MetricMissingNodes counts the nodes of the cluster whose kubelet did not answer.
	MetricMissingNodes = "spokelet_node_scrape_missing"

	// MetricMissingPods counts the pods that are left out because there are too many.
	MetricMissingPods = "spokelet_node_scrape_missing_pods"
)

const (
	maxResources  = 128
	maxConditions = 16
	maxNodes      = 1 << 20
	maxWord       = 63
	maxText       = 256
	maxQuantity   = 32
)

// ErrNodeSummary is returned by DecodeNodeSummary when the peer sent something
// that no agent of ours would send.
var ErrNodeSummary = errors.New("node summary is not valid")

// NodeSummary is what a cluster says of its nodes, as one node. Equal clusters
// encode to equal bytes: slices are sorted, and nothing in it changes by the
// mere passing of time.
type NodeSummary struct {
	// KubernetesVersion is the version of the cluster's API server, "v1.37.2".
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// Nodes counts the cluster's nodes, virtual ones left out.
	Nodes NodeCounts `json:"nodes"`

	// Capacity is the sum over all nodes.
	Capacity Quantities `json:"capacity,omitempty"`

	// Allocatable is what the cluster can take from the hub: the sum over the nodes
	// that are ready and schedulable, less what runs on them that is not the hub's.
	// What of the hub's runs there is in it, for the hub's scheduler counts that
	// itself. It names every resource of Capacity, if need be with zero: the API
	// server takes a missing one for "as much as the capacity".
	Allocatable Quantities `json:"allocatable,omitempty"`

	// Conditions are sorted by type, each type once.
	Conditions []NodeCondition `json:"conditions,omitempty"`

	// NodeInfo holds what all nodes have in common, else Mixed.
	NodeInfo NodeInfo `json:"nodeInfo"`

	// DeclaredFeatures are those that all ready nodes declare, sorted.
	DeclaredFeatures []string `json:"declaredFeatures,omitempty"`

	// System is what the nodes that are ready agree on, or all where none is ready.
	System NodeSystem `json:"system,omitzero"`

	// Zones and Regions are the distinct topology labels, sorted.
	Zones   []string `json:"zones,omitempty"`
	Regions []string `json:"regions,omitempty"`

	// Split is there when all of the above is about the rest of the cluster's nodes
	// alone: those that no group has.
	Split *NodeSplit `json:"split,omitempty"`
}

// NodeCounts counts nodes.
type NodeCounts struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

// NodeCondition is a condition of the cluster as a node; the types and statuses
// are those of corev1.NodeCondition.
type NodeCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// NodeInfo is the part of corev1.NodeSystemInfo that a whole cluster can have.
type NodeInfo struct {
	Architecture            string `json:"architecture,omitempty"`
	OperatingSystem         string `json:"operatingSystem,omitempty"`
	OSImage                 string `json:"osImage,omitempty"`
	KernelVersion           string `json:"kernelVersion,omitempty"`
	ContainerRuntimeVersion string `json:"containerRuntimeVersion,omitempty"`
	KubeletVersion          string `json:"kubeletVersion,omitempty"`
}

// NodeSystem are the values of the labels kubernetes.io/os and kubernetes.io/arch that
// nodes have in common, such as "linux" and "amd64"; empty where they differ.
type NodeSystem struct {
	OS   string `json:"os,omitempty"`
	Arch string `json:"arch,omitempty"`
}

// Quantities maps resource names to quantities in the canonical form of
// resource.Quantity. They stay text until they have been checked: a quantity
// with a large exponent costs its parser as much memory as it likes.
type Quantities map[string]string

// QuantitiesOf writes a resource list.
func QuantitiesOf(list corev1.ResourceList) Quantities {
	if len(list) == 0 {
		return nil
	}
	q := make(Quantities, len(list))
	for name, quantity := range list {
		q[string(name)] = quantity.String()
	}
	return q
}

var plainQuantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$`)

// ResourceList reads the quantities. It refuses names that no node may have,
// negative quantities, and exponents.
func (q Quantities) ResourceList() (corev1.ResourceList, error) {
	if len(q) > maxResources {
		return nil, fmt.Errorf("%d resources are more than %d", len(q), maxResources)
	}
	list := make(corev1.ResourceList, len(q))
	for name, text := range q {
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, fmt.Errorf("resource name %q: %s", clip(name), problems[0])
		}
		if len(text) > maxQuantity || !plainQuantity.MatchString(text) {
			return nil, fmt.Errorf("quantity %q of %s is not a plain number", clip(text), name)
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("quantity %q of %s: %w", text, name, err)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, nil
}

// Encode writes the summary as it travels.
func (s NodeSummary) Encode() ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("node summary cannot be encoded: %w", err)
	}
	return body, nil
}

// DecodeNodeSummary reads a summary from a peer. What it returns may be written
// into a Node: names, versions and quantities are such as the API server takes,
// and texts are short and printable. Unknown fields are ignored, so that an
// older hub understands a newer agent. Errors are ErrNodeSummary.
func DecodeNodeSummary(body []byte) (NodeSummary, error) {
	var s NodeSummary
	if len(body) > NodeSummaryMaxBytes {
		return s, fmt.Errorf("%w: %d bytes are more than %d", ErrNodeSummary, len(body), NodeSummaryMaxBytes)
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return NodeSummary{}, fmt.Errorf("%w: %w", ErrNodeSummary, err)
	}
	if err := s.validate(); err != nil {
		return NodeSummary{}, fmt.Errorf("%w: %w", ErrNodeSummary, err)
	}
	return s, nil
}

func (s NodeSummary) validate() error {
	if s.Nodes.Ready < 0 || s.Nodes.Ready > s.Nodes.Total || s.Nodes.Total > maxNodes {
		return fmt.Errorf("%d of %d nodes cannot be ready", s.Nodes.Ready, s.Nodes.Total)
	}
	if s.KubernetesVersion != "" && !IsVersion(s.KubernetesVersion) {
		return fmt.Errorf("kubernetes version %q is not a semantic version", clip(s.KubernetesVersion))
	}
	for _, q := range []Quantities{s.Capacity, s.Allocatable} {
		if _, err := q.ResourceList(); err != nil {
			return err
		}
	}
	for _, names := range [][]string{s.Zones, s.Regions} {
		if err := validTopology(names); err != nil {
			return err
		}
	}
	if err := errors.Join(s.NodeInfo.validate(), validFeatures(s.DeclaredFeatures), s.System.validate(), s.Split.validate()); err != nil {
		return err
	}
	return validConditions(s.Conditions)
}

func (i NodeInfo) validate() error {
	for _, text := range []string{
		i.Architecture, i.OperatingSystem, i.OSImage, i.KernelVersion, i.ContainerRuntimeVersion, i.KubeletVersion,
	} {
		if !printable(text) {
			return fmt.Errorf("node info %q is not a short line", clip(text))
		}
	}
	return nil
}

var platform = regexp.MustCompile(`^[a-z0-9]*$`)

// IsPlatform reports whether text can be a part of a NodeSystem, which as GOOS and GOARCH
// is of small letters and digits.
func IsPlatform(text string) bool { return len(text) <= maxWord && platform.MatchString(text) }

func (s NodeSystem) validate() error {
	for _, text := range []string{s.OS, s.Arch} {
		if !IsPlatform(text) {
			return fmt.Errorf("system %q is not of small letters and digits", clip(text))
		}
	}
	return nil
}

func validTopology(names []string) error {
	if len(names) > NodeSummaryMaxTopology {
		return fmt.Errorf("%d zones or regions are more than %d", len(names), NodeSummaryMaxTopology)
	}
	for _, name := range names {
		if problems := validation.IsValidLabelValue(name); len(problems) > 0 || name == "" {
			return fmt.Errorf("zone or region %q is not a label value", clip(name))
		}
	}
	return nil
}

var (
	word     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
	statuses = []string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}
)

func validConditions(conditions []NodeCondition) error {
	if len(conditions) > maxConditions {
		return fmt.Errorf("%d conditions are more than %d", len(conditions), maxConditions)
	}
	last := ""
	for _, c := range conditions {
		switch {
		case len(c.Type) > maxWord || !word.MatchString(c.Type) || c.Type <= last:
			return fmt.Errorf("condition type %q is not the next word", clip(c.Type))
		case !slices.Contains(statuses, c.Status):
			return fmt.Errorf("condition %s has status %q", c.Type, clip(c.Status))
		case c.Reason != "" && !IsReason(c.Reason):
			return fmt.Errorf("condition %s has reason %q", c.Type, clip(c.Reason))
		case !printable(c.Message):
			return fmt.Errorf("condition %s has message %q", c.Type, clip(c.Message))
		}
		last = c.Type
	}
	return nil
}

// IsVersion reports whether text is a semantic version. What reads the versions
// of all nodes of a hub, such as kubeadm, stops at one that is not.
func IsVersion(text string) bool {
	if len(text) > maxWord || !printable(text) {
		return false
	}
	_, err := version.ParseSemantic(text)
	return err == nil
}

// IsReason reports whether text can be the reason of a condition.
func IsReason(text string) bool {
	return len(text) <= maxWord && word.MatchString(text)
}

// Line makes of text what a summary may hold: one printable line, cut short.
func Line(text string) string { return lineOf(text, maxText) }

func lineOf(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !printableRune(r) {
			return -1
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

func printable(text string) bool {
	return len(text) <= maxText && strings.IndexFunc(text, func(r rune) bool { return !printableRune(r) }) < 0
}

// printableRune refuses the replacement character as well: it stands for bytes
// that are no UTF-8.
func printableRune(r rune) bool {
	return r != unicode.ReplacementChar && unicode.IsPrint(r)
}

// clip keeps a hostile text from filling an error.
func clip(text string) string {
	return text[:min(len(text), maxWord)]
}
