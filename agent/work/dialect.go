// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// Anchor is the object that stands for a work in the spoke.
	Anchor AnchorKind
	// Conditions names the work's conditions.
	Conditions ConditionNames
}

// AnchorKind says how anchors are stored.
type AnchorKind struct {
	Resource schema.GroupVersionResource
	Kind     string
	// Finalizer keeps an anchor until everything it lists is gone.
	Finalizer string
}

// reference is the ownerReference of an applied object to its anchor: never a
// controller, never blocking.
func (k AnchorKind) reference(name string, o owner) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: k.Resource.GroupVersion().String(), Kind: k.Kind, Name: name, UID: o.anchor}
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
		Dialect:      wire.DialectMulticluster,
		FieldManager: FieldManager,
		Force:        true,
		Anchor: AnchorKind{
			Resource:  v1alpha1.GroupVersion.WithResource("appliedworks"),
			Kind:      "AppliedWork",
			Finalizer: "spokelet.io/work-cleanup",
		},
		Conditions: ConditionNames{
			AppliedReason: "AppliedWorkComplete", AppliedMessage: "Apply work complete",
			FailedReason: "AppliedWorkFailed", FailedMessage: "Failed to apply work",
		},
	}
}

// FieldManager is the field manager of every write to an applied object.
const FieldManager = "work-agent"

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
