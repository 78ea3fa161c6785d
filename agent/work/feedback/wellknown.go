// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"
)

// resolve returns the paths of a rule for an object's kind.
func (c compiled) resolve(gvk schema.GroupVersionKind) ([]path, error) {
	if c.err != nil {
		return nil, c.err
	}
	if !c.wellKnown {
		return c.paths, nil
	}
	paths, ok := wellKnown[gvk]
	if !ok {
		return nil, fmt.Errorf("cannot find the wellknown statuses for resource with gvk %s", gvk)
	}
	return paths, nil
}

// wellKnown is OCM's table of what WellKnownStatus reports.
var wellKnown = map[schema.GroupVersionKind][]path{
	{Group: "apps", Version: "v1", Kind: "Deployment"}: fixed(
		"ReadyReplicas", ".status.readyReplicas",
		"Replicas", ".status.replicas",
		"AvailableReplicas", ".status.availableReplicas",
	),
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}: fixed(
		"NumberReady", ".status.numberReady",
		"DesiredNumberScheduled", ".status.desiredNumberScheduled",
		"NumberAvailable", ".status.numberAvailable",
	),
	{Group: "batch", Version: "v1", Kind: "Job"}: fixed(
		"JobComplete", `.status.conditions[?(@.type=="Complete")].status`,
		"JobSucceeded", ".status.succeeded",
	),
	{Version: "v1", Kind: "Pod"}: fixed(
		"PodReady", `.status.conditions[?(@.type=="Ready")].status`,
		"PodPhase", ".status.phase",
	),
}

// fixed parses pairs of name and path.
func fixed(pairs ...string) []path {
	var out []path
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, parse(workv1.JsonPath{Name: pairs[i], Path: pairs[i+1]}))
	}
	return out
}
