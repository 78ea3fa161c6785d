// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod"
)

// What the Ready condition of a virtual node gives as its reason when it is the
// hub that says so; else the reason is the spoke's.
const (
	// ReasonTunnelDisconnected: the cluster has no session with the hub.
	ReasonTunnelDisconnected = "TunnelDisconnected"

	// ReasonSummaryMissing: the cluster is connected and has not yet sent
	// a summary of its nodes.
	ReasonSummaryMissing = "NodeSummaryMissing"

	// ReasonNoNodes: the node is that of a group, and the last of its nodes is gone.
	// It stays while pods are bound to it.
	ReasonNoNodes = "NoNodes"
)

const (
	// LabelType is how virtual-kubelet's nodes are known to those who keep off
	// them.
	LabelType = "type"

	// TaintVirtualNode keeps off every pod that does not ask for the node.
	TaintVirtualNode = "spokelet.io/virtual-node"

	// TypeVirtualKubelet is the value of LabelType.
	TypeVirtualKubelet = "virtual-kubelet"

	labelNoLoadBalancers = corev1.LabelNodeExcludeBalancers
	labelNoDisruption    = "node.kubernetes.io/exclude-disruption"
	providerIDScheme     = "spokelet://"
)

// Cluster is an accepted cluster.
type Cluster struct {
	// Name is the cluster's name and its own node's.
	Name string
	// ID is the cluster's immutable id.
	ID string
	// Labels are put on the node, where they do not claim what is ours to say.
	Labels map[string]string
	// Consent is what the record allows of what the agent says.
	Consent pod.Consent
}

// splits reports whether the cluster is shown in the groups of a summary. The label
// decides which pods select the Nodes of groups, so the record has to name it.
func (c Cluster) splits(s *wire.NodeSummary) bool {
	return s != nil && s.Split != nil && s.Split.Label == c.Consent.SplitLabel
}

// providerID of the node of a group, or of the cluster's own.
func (c Cluster) providerID(group string) string {
	id := providerIDScheme + c.ID
	if group != "" {
		id += "/" + group
	}
	return id
}

// nodeState is all that is known of a cluster. It is a value: what it shares with
// its copies is never written.
type nodeState struct {
	cluster Cluster
	// group is empty for the cluster's own node. label is that whose value it is;
	// vanished: the cluster does not name it any more.
	group, label string
	vanished     bool

	address string
	port    int32

	link Link
	// wasConnected is true once the link has been up in this process.
	wasConnected bool
	// graceEnded is true when clusters have had their time to reconnect to a hub
	// that has just started.
	graceEnded bool

	summary *wire.NodeSummary
	// clusterLabels are the labels of zone, region and system that the Node has from the
	// cluster. They stay until the cluster sends its next summary.
	clusterLabels map[string]string
	// system is whether the Node has the labels of what its cluster's nodes run on.
	system systemLabels
	// lastStatus is the status that the Node has, as far as it is ours. It is
	// written again where nothing newer is known, and keeps the times of transitions.
	lastStatus corev1.NodeStatus
}

func (v nodeState) name() string { return wire.NodeName(v.cluster.Name, v.group) }

// node returns the Node that the hub should have.
func (v nodeState) node(now metav1.Time) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: v.name(), Labels: v.labels()},
		Spec: corev1.NodeSpec{
			ProviderID: v.cluster.providerID(v.group),
			Taints:     []corev1.Taint{{Key: TaintVirtualNode, Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: v.status(now),
	}
}

// betaLabels are labels of before 1.14 by those that took their place. Kubernetes' node
// controller gives them to every node that has the latter, and takes none away: a virtual
// node has them itself, so that they go together.
var betaLabels = map[string]string{
	corev1.LabelOSStable:   "beta.kubernetes.io/os",
	corev1.LabelArchStable: "beta.kubernetes.io/arch",
}

// clusterLabelNames are the labels that a cluster says of itself.
var clusterLabelNames = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelOSStable, corev1.LabelArchStable,
}

func (v nodeState) labels() map[string]string {
	labels := make(map[string]string, len(v.cluster.Labels)+11)
	switch {
	case v.summary == nil:
		maps.Copy(labels, v.clusterLabels)
	case v.refusesSplit():
		// The summary is that of the rest: where the whole cluster lies is not known.
		v.addSystemLabels(labels, v.summary.Whole().System)
	default:
		setSingleValue(labels, corev1.LabelTopologyZone, v.summary.Zones)
		setSingleValue(labels, corev1.LabelTopologyRegion, v.summary.Regions)
		v.addSystemLabels(labels, v.summary.System)
	}
	if v.label != "" && v.label == v.cluster.Consent.SplitLabel {
		labels[v.label] = v.group
	}
	maps.Copy(labels, v.cluster.Labels)
	for name, before := range betaLabels {
		delete(labels, before)
		if value, ok := labels[name]; ok {
			labels[before] = value
		}
	}
	labels[corev1.LabelHostname] = hostnameLabel(v.name())
	labels[wire.LabelCluster] = v.cluster.Name
	labels[LabelType] = TypeVirtualKubelet
	labels[labelNoLoadBalancers] = "true"
	labels[labelNoDisruption] = "true"
	return labels
}

// addSystemLabels sets the labels by which published charts choose nodes, where the nodes of
// the cluster agree on them.
func (v nodeState) addSystemLabels(labels map[string]string, system wire.NodeSystem) {
	if !v.system.applied {
		return
	}
	for name, value := range map[string]string{corev1.LabelOSStable: system.OS, corev1.LabelArchStable: system.Arch} {
		if value != "" {
			labels[name] = value
		}
	}
}

// refusesSplit: the agent says that its cluster is in groups, and the record does not
// consent to their label. Its own node is then the whole cluster.
func (v nodeState) refusesSplit() bool {
	return v.summary != nil && v.summary.Split != nil && !v.cluster.splits(v.summary)
}

// annotationLastMeta is where virtual-kubelet keeps the metadata of a Node that it applied last,
// and annotationLastStatus that of its status. It reads both or none.
const (
	annotationLastMeta   = "virtual-kubelet.io/last-applied-object-meta"
	annotationLastStatus = "virtual-kubelet.io/last-applied-node-status"
)

// lastClusterLabels are the labels of a cluster that were applied last to its Node,
// which for one that was not changed since are those that it was made with. What somebody
// else put there stays theirs, but for such a Node: of that nobody wrote down who did.
func lastClusterLabels(found *corev1.Node) map[string]string {
	labels := found.Labels
	if text, ok := found.Annotations[annotationLastMeta]; ok {
		var said metav1.ObjectMeta
		if err := json.Unmarshal([]byte(text), &said); err != nil {
			return nil // virtual-kubelet stops at that, and says so
		}
		labels = said.Labels
	}
	last := map[string]string{}
	for _, name := range clusterLabelNames {
		if value, ok := labels[name]; ok {
			last[name] = value
		}
	}
	return last
}

// setSingleValue labels only a cluster that lies in one place.
func setSingleValue(labels map[string]string, name string, values []string) {
	if len(values) == 1 {
		labels[name] = values[0]
	}
}

func (v nodeState) status(now metav1.Time) corev1.NodeStatus {
	s := corev1.NodeStatus{
		Capacity:        v.lastStatus.Capacity,
		Allocatable:     v.lastStatus.Allocatable,
		NodeInfo:        v.lastStatus.NodeInfo,
		Conditions:      withTransitionTimes(v.conditions(), v.lastStatus.Conditions, now),
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: v.address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: v.port}},

		DeclaredFeatures: v.lastStatus.DeclaredFeatures,
	}
	if v.vanished {
		s.Capacity, s.Allocatable, s.DeclaredFeatures = zeroResources(v.lastStatus.Capacity), zeroResources(v.lastStatus.Capacity), nil
		return s
	}
	if v.summary == nil {
		return s
	}
	// DecodeNodeSummary has read both lists once.
	figures := wire.NodeSplit{
		Capacity: v.summary.Capacity, Allocatable: v.summary.Allocatable, DeclaredFeatures: v.summary.DeclaredFeatures,
	}
	if v.refusesSplit() {
		figures = v.summary.Whole()
	}
	s.Capacity, _ = figures.Capacity.ResourceList()
	s.Allocatable, _ = figures.Allocatable.ResourceList()
	s.DeclaredFeatures = declaredFeatures(figures.DeclaredFeatures, v.summary.KubernetesVersion)
	s.NodeInfo = corev1.NodeSystemInfo{
		Architecture:            v.summary.NodeInfo.Architecture,
		OperatingSystem:         v.summary.NodeInfo.OperatingSystem,
		OSImage:                 v.summary.NodeInfo.OSImage,
		KernelVersion:           v.summary.NodeInfo.KernelVersion,
		ContainerRuntimeVersion: v.summary.NodeInfo.ContainerRuntimeVersion,
		// Not the kubelets': theirs may differ, and readers expect a version.
		KubeletVersion: v.summary.KubernetesVersion,
	}
	return s
}

// endpointFeature is not the cluster's to declare, but that of the node's own kubelet
// endpoint: with it, a hub from Kubernetes 1.36 on sends exec, attach and port-forward as
// WebSockets, which the endpoint passes on to the cluster's API server.
const endpointFeature = "ExtendWebSocketsToKubelet"

// webSocketsSince is the first version of Kubernetes whose API server serves exec, attach
// and port-forward by WebSocket as kubectl asks for it (v5.channel.k8s.io, and
// SPDY/3.1+portforward.k8s.io, both on by default).
var webSocketsSince = version.MustParseGeneric("1.31")

// declaredFeatures returns the features of a node, sorted: those of the cluster, and that
// of the endpoint if the cluster's API server can take WebSockets.
func declaredFeatures(ofCluster []string, clusterVersion string) []string {
	declared := slices.DeleteFunc(slices.Clone(ofCluster), func(feature string) bool { return feature == endpointFeature })
	if v, err := version.ParseGeneric(clusterVersion); err == nil && v.AtLeast(webSocketsSince) {
		declared = append(declared, endpointFeature)
		slices.Sort(declared)
	}
	return declared
}

// zeroResources is as much of every resource as a node without machines has.
func zeroResources(list corev1.ResourceList) corev1.ResourceList {
	zero := make(corev1.ResourceList, len(list))
	for name, quantity := range list {
		zero[name] = resource.Quantity{Format: quantity.Format}
	}
	return zero
}

func (v nodeState) conditions() []corev1.NodeCondition {
	switch {
	case v.keepsConditions():
		return v.lastStatus.Conditions
	case !v.link.Up:
		return v.unknownConditions(ReasonTunnelDisconnected, v.disconnectedMessage())
	case v.vanished:
		return v.unknownConditions(ReasonNoNodes, fmt.Sprintf("cluster %s is not shown with the group %s any more", v.cluster.Name, v.group))
	case v.summary == nil:
		return v.unknownConditions(ReasonSummaryMissing, fmt.Sprintf("cluster %s has not said anything of its nodes", v.cluster.Name))
	}
	conditions := make([]corev1.NodeCondition, 0, len(v.summary.Conditions))
	for _, c := range v.summary.Conditions {
		conditions = append(conditions, corev1.NodeCondition{
			Type:    corev1.NodeConditionType(c.Type),
			Status:  corev1.ConditionStatus(c.Status),
			Reason:  c.Reason,
			Message: c.Message,
		})
	}
	return conditions
}

// keepsConditions reports whether a Node that is not known to be down keeps the
// conditions that it has: the hub has just started, and what it does not know
// yet is no news.
func (v nodeState) keepsConditions() bool {
	ready := findCondition(v.lastStatus.Conditions, corev1.NodeReady)
	if v.graceEnded || v.vanished || ready == nil || ready.Status == corev1.ConditionFalse {
		return false
	}
	if v.link.Up {
		return v.summary == nil
	}
	return !v.wasConnected
}

func (v nodeState) disconnectedMessage() string {
	switch {
	case v.link.Reason != "":
		return fmt.Sprintf("cluster %s is not connected: %s", v.cluster.Name, v.link.Reason)
	case v.wasConnected:
		return fmt.Sprintf("cluster %s is not connected", v.cluster.Name)
	default:
		return fmt.Sprintf("cluster %s has not connected since the hub started", v.cluster.Name)
	}
}

// unknownConditions is what the hub says of a cluster that says nothing itself: not
// ready, and of the rest that it does not know.
func (v nodeState) unknownConditions(reason, message string) []corev1.NodeCondition {
	conditions := []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: reason, Message: wire.Line(message),
	}}
	for _, kind := range v.clusterConditionTypes() {
		conditions = append(conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionUnknown, Reason: reason, Message: wire.Line(message),
		})
	}
	return conditions
}

// clusterConditionTypes are the conditions besides Ready that the cluster stated last.
func (v nodeState) clusterConditionTypes() []corev1.NodeConditionType {
	var kinds []corev1.NodeConditionType
	if v.summary != nil {
		for _, c := range v.summary.Conditions {
			kinds = append(kinds, corev1.NodeConditionType(c.Type))
		}
	} else {
		for _, c := range v.lastStatus.Conditions {
			kinds = append(kinds, c.Type)
		}
	}
	return slices.DeleteFunc(kinds, func(k corev1.NodeConditionType) bool { return k == corev1.NodeReady })
}

// withTransitionTimes sets the times of transition: kept where the status is kept.
func withTransitionTimes(conditions, before []corev1.NodeCondition, now metav1.Time) []corev1.NodeCondition {
	dated := slices.Clone(conditions)
	for i := range dated {
		dated[i].LastTransitionTime = now
		if old := findCondition(before, dated[i].Type); old != nil && old.Status == dated[i].Status {
			dated[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	slices.SortFunc(dated, func(a, b corev1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return dated
}

func findCondition(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// ownStatus returns the part of a Node's status that a virtual node writes. The
// conditions of others stay theirs.
func ownStatus(s corev1.NodeStatus) corev1.NodeStatus {
	own := corev1.NodeStatus{
		Capacity: s.Capacity, Allocatable: s.Allocatable, NodeInfo: s.NodeInfo, DeclaredFeatures: s.DeclaredFeatures,
	}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodeNetworkUnavailable, corev1.NodePIDPressure, corev1.NodeReady,
	} {
		if c := findCondition(s.Conditions, kind); c != nil {
			own.Conditions = append(own.Conditions, *c)
		}
	}
	return own
}
