// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

// unknownOrder is the place of kinds that no rule names: after all that do.
const unknownOrder = 1000

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
