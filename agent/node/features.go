// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// commonFeatures are what every ready node declares, sorted: a pod that needs one may be put on
// any of them. Without a ready node there are none.
func commonFeatures(ready []*corev1.Node) []string {
	var common []string
	for i, node := range ready {
		if i == 0 {
			common = slices.Clone(node.Status.DeclaredFeatures)
			continue
		}
		common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(node.Status.DeclaredFeatures, name) })
	}
	// A hub refuses a summary with another.
	common = slices.DeleteFunc(common, func(name string) bool { return !wire.IsNodeFeature(name) })
	slices.Sort(common)
	common = slices.Compact(common)
	return common[:min(len(common), wire.NodeSummaryMaxFeatures)]
}
