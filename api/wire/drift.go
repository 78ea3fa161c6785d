// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// AnnotationDrift is "report" on a work whose manifests are compared with what is in the
	// spoke, and not applied.
	AnnotationDrift = "spokelet.io/drift"
	// ConditionDrifted is on such a work, and on each of its manifests. A rule of the work
	// may give a condition of its own that name, with another reason.
	ConditionDrifted = "Drifted"
	// ReasonFieldsDiffer is that of a manifest whose object has not all that it says.
	ReasonFieldsDiffer = "FieldsDiffer"
	// ReasonObjectMissing is that of a manifest without an object.
	ReasonObjectMissing = "ObjectMissing"
	// ReasonManifestsDiffer is that of a work with manifests of these two reasons.
	ReasonManifestsDiffer = "ManifestsDiffer"
	// ReasonNoDifference is that of what is as the manifests say.
	ReasonNoDifference = "NoDifference"
	// ReasonNotCompared is that of what could not be looked at.
	ReasonNotCompared = "NotCompared"
)

// ReportsDrift tells whether a work with these annotations is compared and not applied.
// Any other value than "report" is none.
func ReportsDrift(annotations map[string]string) bool {
	return annotations[AnnotationDrift] == "report"
}

// IsDriftReport tells ConditionDrifted from a condition of that type that a rule set.
func IsDriftReport(c metav1.Condition) bool {
	if c.Type != ConditionDrifted {
		return false
	}
	switch c.Reason {
	case ReasonFieldsDiffer, ReasonObjectMissing, ReasonManifestsDiffer, ReasonNoDifference, ReasonNotCompared:
		return true
	default:
		return false
	}
}
