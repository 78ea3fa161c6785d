// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"
)

// wellKnown is OCM's table of the values that WellKnownStatus reports.
var wellKnown = map[schema.GroupVersionKind][]path{
	{Group: "apps", Version: "v1", Kind: "Deployment"}: parsePairs(
		"ReadyReplicas", ".status.readyReplicas",
		"Replicas", ".status.replicas",
		"AvailableReplicas", ".status.availableReplicas",
	),
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}: parsePairs(
		"NumberReady", ".status.numberReady",
		"DesiredNumberScheduled", ".status.desiredNumberScheduled",
		"NumberAvailable", ".status.numberAvailable",
	),
	{Group: "batch", Version: "v1", Kind: "Job"}: parsePairs(
		"JobComplete", `.status.conditions[?(@.type=="Complete")].status`,
		"JobSucceeded", ".status.succeeded",
	),
	{Version: "v1", Kind: "Pod"}: parsePairs(
		"PodReady", `.status.conditions[?(@.type=="Ready")].status`,
		"PodPhase", ".status.phase",
	),
}

// parsePairs parses pairs of name and path.
func parsePairs(pairs ...string) []path {
	var out []path
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, parsePath(workv1.JsonPath{Name: pairs[i], Path: pairs[i+1]}))
	}
	return out
}
