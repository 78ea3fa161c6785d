// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement keeps off virtual nodes what tolerates every taint without naming such
// nodes.
//
// A virtual node with the labels kubernetes.io/os and kubernetes.io/arch fits a DaemonSet
// that tolerates every taint, as those of networks and log collectors do. Its controller
// then wants a pod there, which nobody runs, and waits for it: no rollout ends. And it
// fits the pods of those Deployments, operators of networks for instance, which were kept
// off by the want of a label alone. Install has the API server add a requirement that no
// virtual node meets to such DaemonSets, as they are created and as their pods are
// replaced in any case, and to such pods, as they are created. DaemonSets knows those that
// were there before: until their pods are replaced they would count a node for the labels.
package placement

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/mutation"
	"github.com/spokelet/spokelet/provider"
)

//go:embed policy.yaml
var policyYAML []byte

// Install has the API server keep DaemonSets and pods off virtual nodes from now on. It fails
// with mutation.ErrNotServed.
func Install(ctx context.Context, c client.Client) error {
	objects, err := mutation.Parse(policyYAML)
	if err != nil {
		return err
	}
	return mutation.Apply(ctx, c, objects)
}

// labelPrefix is the prefix of the labels that virtual nodes alone have.
const labelPrefix = "spokelet.io/"

// toleratesAllUntargeted reports whether a DaemonSet tolerates every taint and targets no
// nodes: it is the conditions of the policy but for the first.
func toleratesAllUntargeted(d *appsv1.DaemonSet) bool {
	spec := &d.Spec.Template.Spec
	return spec.NodeName == "" && toleratesAll(spec.Tolerations) && !selectorTargetsNodes(spec.NodeSelector) &&
		!slices.ContainsFunc(requiredTerms(spec.Affinity), termTargetsNodes)
}

func toleratesAll(tolerations []corev1.Toleration) bool {
	every := func(t corev1.Toleration) bool {
		return t.Key == "" && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	}
	virtual := func(t corev1.Toleration) bool { return t.Key == provider.TaintVirtualNode }
	return slices.ContainsFunc(tolerations, every) && !slices.ContainsFunc(tolerations, virtual)
}

func selectorTargetsNodes(labels map[string]string) bool {
	for key, value := range labels {
		if strings.HasPrefix(key, labelPrefix) || key == corev1.LabelHostname || key == provider.LabelType && value == provider.TypeVirtualKubelet {
			return true
		}
	}
	return false
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func termTargetsNodes(term corev1.NodeSelectorTerm) bool {
	return len(term.MatchFields) > 0 || slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
		return strings.HasPrefix(e.Key, labelPrefix) || e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn ||
			e.Key == provider.LabelType && slices.Contains(e.Values, provider.TypeVirtualKubelet)
	})
}
