// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// virtualProviderID is how the provider ids of a hub's virtual nodes begin.
const virtualProviderID = "spokelet://"

// trimNode returns the cache's transform: it keeps of a Node what the summary and the
// scraper read, and one more label if that is not empty. What it drops, images first, is nine tenths of the object, and
// the heartbeat times in it are what makes an idle Node change at all.
func trimNode(label string) func(any) (any, error) {
	labels := []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}
	if label != "" {
		labels = append(labels, label)
	}
	return func(obj any) (any, error) {
		if node, ok := obj.(*corev1.Node); ok {
			return trimmedNode(node, labels), nil
		}
		return obj, nil
	}
}

func trimmedNode(node *corev1.Node, labels []string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			UID:             node.UID,
			ResourceVersion: node.ResourceVersion,
			Labels:          selectLabels(node.Labels, labels),
		},
		Spec: corev1.NodeSpec{
			ProviderID:    node.Spec.ProviderID,
			Unschedulable: node.Spec.Unschedulable,
		},
		Status: corev1.NodeStatus{
			Capacity:        node.Status.Capacity,
			Allocatable:     node.Status.Allocatable,
			Conditions:      trimConditions(node.Status.Conditions),
			Addresses:       node.Status.Addresses,
			DaemonEndpoints: node.Status.DaemonEndpoints,
			NodeInfo:        trimInfo(node.Status.NodeInfo),

			DeclaredFeatures: node.Status.DeclaredFeatures,
		},
	}
}

func selectLabels(labels map[string]string, names []string) map[string]string {
	var kept map[string]string
	for _, name := range names {
		value, ok := labels[name]
		if !ok {
			continue
		}
		if kept == nil {
			kept = make(map[string]string, len(names))
		}
		kept[name] = value
	}
	return kept
}

func trimConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	kept := make([]corev1.NodeCondition, 0, len(summarizedConditions))
	for _, c := range conditions {
		if _, ok := summarizedConditions[c.Type]; ok {
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	return kept
}

func trimInfo(i corev1.NodeSystemInfo) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		Architecture:            i.Architecture,
		OperatingSystem:         i.OperatingSystem,
		OSImage:                 i.OSImage,
		KernelVersion:           i.KernelVersion,
		ContainerRuntimeVersion: i.ContainerRuntimeVersion,
		KubeletVersion:          i.KubeletVersion,
	}
}

// equalNodes reports whether two trimmed nodes summarise alike.
func equalNodes(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Status, b.Status)
}

func isVirtual(node *corev1.Node) bool {
	return strings.HasPrefix(node.Spec.ProviderID, virtualProviderID)
}
