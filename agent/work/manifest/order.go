// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// unknownOrder is the place of kinds that no rule names: after all that do.
const unknownOrder = 1000

// ApplyOrder is the place of an object among others. An anchor that another agent wrote
// says no kinds, so the resource stands for it.
func (t Target) ApplyOrder() int {
	if t.Kind != "" {
		return kindOrder(t.Kind)
	}
	for _, kind := range orderedKinds {
		if guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: kind}); guess.Resource == t.Resource {
			return kindOrder(kind)
		}
	}
	return unknownOrder
}

// orderedKinds are the kinds that kindOrder names.
var orderedKinds = []string{
	"PriorityClass", "Namespace", "CustomResourceDefinition", "StorageClass", "PersistentVolume",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount",
	"Secret", "ConfigMap", "PersistentVolumeClaim", "Service",
	"DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job", "CronJob",
	"APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// kindOrder is the fixed order in which kinds are applied; they are deleted in
// the reverse one. It is the order of OCM's work agent (ocm#1500).
func kindOrder(kind string) int {
	switch kind {
	case "PriorityClass", "Namespace", "CustomResourceDefinition", "StorageClass", "PersistentVolume", "PodSecurityPolicy":
		return 0
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		return 1
	case "NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount":
		return 2
	case "Secret", "ConfigMap", "PersistentVolumeClaim":
		return 3
	case "Service":
		return 4
	case "DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job", "CronJob":
		return 5
	case "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return 6
	default:
		return unknownOrder
	}
}
