// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// Policy is what tells the works of one dialect from those of another, once both
// are in the canonical form.
type Policy struct {
	// Dialect is the first part of a work's key.
	Dialect string
	// FieldManager and Force are those of every server-side apply.
	FieldManager string
	Force        bool
	// Strategy is how manifests are written that name no strategy of their own.
	Strategy workv1.UpdateStrategyType
	// KeepsExisting: an object that was there before a work applied it stays when the
	// work goes. Otherwise what bears the anchor's reference goes with it.
	KeepsExisting bool
	// RecordsFirst: whoever sees that a work is applied finds its objects in the
	// status of the anchor, but for works of a burst, and while the anchor cannot be
	// written.
	RecordsFirst bool
	// Anchor is the object that stands for a work in the spoke.
	Anchor record.Kind
	// Conditions names the work's conditions.
	Conditions ConditionNames
	// formatter are the dialect's for the status.
	formatter statusFormatter
}

// ConditionNames are the reasons and messages of a dialect's Applied condition
// at the level of the work; those of manifests are the same everywhere.
type ConditionNames struct {
	AppliedReason, AppliedMessage string
	FailedReason, FailedMessage   string
}

// Multicluster is the policy of multicluster.x-k8s.io/v1alpha1 Work.
func Multicluster() Policy {
	return Policy{
		Dialect:       wire.DialectMulticluster,
		FieldManager:  inventory.FieldManager,
		Force:         true,
		Strategy:      workv1.UpdateStrategyTypeServerSideApply,
		KeepsExisting: true,
		Anchor:        record.AppliedWorks(),
		formatter:     multiclusterFormatter{},
		Conditions: ConditionNames{
			AppliedReason: "AppliedWorkComplete", AppliedMessage: "Apply work complete",
			FailedReason: "AppliedWorkFailed", FailedMessage: "Failed to apply work",
		},
	}
}

// ManifestWork is the policy of work.open-cluster-management.io/v1 ManifestWork.
func ManifestWork() Policy {
	return Policy{
		Dialect:      wire.DialectManifestWork,
		FieldManager: workv1.DefaultFieldManager,
		Strategy:     workv1.UpdateStrategyTypeUpdate,
		RecordsFirst: true,
		Anchor:       record.AppliedManifestWorks(),
		formatter:    manifestWorkFormatter{},
		Conditions: ConditionNames{
			AppliedReason: "AppliedManifestWorkComplete", AppliedMessage: "Apply manifest work complete",
			FailedReason: "AppliedManifestWorkFailed", FailedMessage: "Failed to apply manifest work",
		},
	}
}

// allPolicies by dialect.
func allPolicies() map[string]Policy {
	return map[string]Policy{wire.DialectMulticluster: Multicluster(), wire.DialectManifestWork: ManifestWork()}
}
