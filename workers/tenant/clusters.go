// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/workers/api"
)

// offeredValue is the value of the label that offers a cluster.
const offeredValue = "true"

// Clusters returns the names of the clusters that an account of a namespace is placed on,
// sorted.
func Clusters(ns *corev1.Namespace, selector metav1.LabelSelector, clusters []clusterv1.ManagedCluster) ([]string, error) {
	allowed, err := labels.Parse(ns.Annotations[api.AnnotationClusters])
	if err != nil {
		return nil, fmt.Errorf("annotation %s of namespace %s: %w", api.AnnotationClusters, ns.Name, err)
	}
	chosen, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, fmt.Errorf("clusterSelector: %w", err)
	}
	names := []string{}
	for i := range clusters {
		c := &clusters[i]
		set := labels.Set(c.Labels)
		if isSelectable(c) && allowed.Matches(set) && chosen.Matches(set) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// isSelectable reports whether a cluster is offered to accounts and can take works.
func isSelectable(c *clusterv1.ManagedCluster) bool {
	return c.Labels[api.LabelClusters] == offeredValue && c.Spec.HubAcceptsClient && c.DeletionTimestamp.IsZero() &&
		!managedcluster.IsDetaching(c)
}
