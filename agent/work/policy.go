// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
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
	Anchor AnchorKind
	// Conditions names the work's conditions.
	Conditions ConditionNames
	// formatter are the dialect's for the status.
	formatter statusFormatter
}

// AnchorKind says how anchors are stored.
type AnchorKind struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Finalizer keeps an anchor until everything it lists is gone.
	Finalizer string
	// form is how an anchor's content is written.
	form anchorForm
}

// reference is the ownerReference of an applied object to its anchor: never a
// controller, never blocking.
func (k AnchorKind) reference(name string, o inventory.Owner) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: k.Resource.GroupVersion().String(), Kind: k.Kind, Name: name, UID: o.Anchor}
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
		Anchor: AnchorKind{
			Resource:  v1alpha1.GroupVersion.WithResource("appliedworks"),
			Kind:      "AppliedWork",
			Finalizer: "spokelet.io/work-cleanup",
			form:      appliedWorkForm{},
		},
		formatter: multiclusterFormatter{},
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
		Anchor: AnchorKind{
			Resource:  schema.GroupVersion(workv1.GroupVersion).WithResource("appliedmanifestworks"),
			Kind:      "AppliedManifestWork",
			Finalizer: workv1.AppliedManifestWorkFinalizer,
			form:      appliedManifestWorkForm{},
		},
		formatter: manifestWorkFormatter{},
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

// isAnchor recognises the anchors of every work agent that shares objects by
// ownerReference, ours or not.
func isAnchor(o metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return false
	}
	return gv.Group == v1alpha1.GroupVersion.Group && o.Kind == "AppliedWork" ||
		gv.Group == "work.open-cluster-management.io" && o.Kind == "AppliedManifestWork"
}

// anchorResource is where an owner for which isAnchor holds is stored.
func anchorResource(o metav1.OwnerReference) schema.GroupVersionResource {
	gv, _ := schema.ParseGroupVersion(o.APIVersion)
	if o.Kind == "AppliedWork" {
		return gv.WithResource("appliedworks")
	}
	return gv.WithResource("appliedmanifestworks")
}
