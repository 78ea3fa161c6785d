// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

const (
	// AnnotationSuspend is "true" on a work of which nothing is applied, repaired or
	// deleted in the spoke for the time being.
	AnnotationSuspend = "spokelet.io/suspend"
	// ConditionSuspended is on a work while that is so, with ReasonSuspended. A rule of
	// the work may give a condition of its own that name, with another reason.
	ConditionSuspended = "Suspended"
	// ReasonSuspended is the reason of ConditionSuspended.
	ReasonSuspended = "SuspendedByAnnotation"
)

// Suspends tells whether a work with these annotations is suspended. Any other value than
// "true" is none.
func Suspends(annotations map[string]string) bool { return annotations[AnnotationSuspend] == "true" }
