// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/manifestconfig"
)

// Spec is what the hub asks for; it is replaced, never changed.
type Spec struct {
	UID        string
	Generation int64
	IsDeleting bool
	Manifests  []manifest.Manifest
	// ManifestWork is the rest of what the work says.
	ManifestWork workv1.ManifestWorkSpec
	// Refusal says why it cannot be executed, nil when it can.
	Refusal       error
	HubHash       string
	Labels        map[string]string
	ReportsHealth bool
	// IsSuspended: nothing is to be done. applied is the generation that was applied last,
	// as far as the hub knows.
	IsSuspended       bool
	AppliedGeneration int64
	// ReportsDrift: the manifests are to be compared, and not applied.
	ReportsDrift bool
	// IsCached: read from our own copy, not yet confirmed by the hub.
	IsCached bool
	Received time.Time
}

// OwnsObject tells whether the work's anchor owns an object that it lists.
func (d *Spec) OwnsObject(id workv1.ResourceIdentifier) bool {
	h := Options{IsOrphaned: IsOrphaned(d.ManifestWork.DeleteOption, id)}
	if u := manifestconfig.Match(d.ManifestWork.ManifestConfigs, id).UpdateStrategy; u != nil {
		h.Strategy = u.Type
	}
	return h.OwnsObject()
}

// MayWrite tells whether what is wanted may change anything in the spoke. A work that the
// hub does not know is evicted.
func (d *Spec) MayWrite() bool {
	return d == nil || !d.IsSuspended && (!d.ReportsDrift || d.IsDeleting)
}
