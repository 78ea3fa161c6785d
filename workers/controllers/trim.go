// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"slices"
	"strings"

	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

const (
	// maxWorkStatus is how many bytes of a work's status are kept, as JSON. That of a hundred
	// scripts has 70 KiB. A cluster writes it, and the hub stores up to 1.5 MiB.
	maxWorkStatus = 256 << 10
	// maxWorkConditions, of maxWorkMessage bytes each, are kept of one that is larger.
	maxWorkConditions = 32
	maxWorkMessage    = 4 << 10
)

// trimWork is the cache's transform of works: it drops what a cluster may make large. The agent
// itself leaves out the manifests of a status that is too large.
func trimWork(object any) (any, error) {
	work, isWork := object.(*workv1.ManifestWork)
	if !isWork {
		return cache.TransformStripManagedFields()(object)
	}
	work.ManagedFields = nil
	status := &work.Status
	if text, err := json.Marshal(status); err == nil && len(text) <= maxWorkStatus {
		return work, nil
	}
	status.ResourceStatus = workv1.ManifestResourceStatus{}
	status.Conditions = slices.Clone(status.Conditions[:min(len(status.Conditions), maxWorkConditions)]) // the others are not kept
	for i, c := range status.Conditions {
		status.Conditions[i].Message = strings.Clone(c.Message[:min(len(c.Message), maxWorkMessage)])
	}
	return work, nil
}
