// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import corev1 "k8s.io/api/core/v1"

// SelectGroup has a pod run on the nodes of a group alone: those with that value of the
// label. It has no selector of its own, for those of the hub stay there.
func SelectGroup(pod *corev1.Pod, label, group string) {
	pod.Spec.NodeSelector = map[string]string{label: group}
}

// AvoidGroups has a pod run on no node of any of the groups.
func AvoidGroups(pod *corev1.Pod, label string, groups []string) {
	if len(groups) == 0 {
		return
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: label, Operator: corev1.NodeSelectorOpNotIn, Values: groups},
				},
			}},
		},
	}}
}
