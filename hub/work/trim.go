// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
)

const (
	// trimMargin is for what stands around the parts that are counted, and for the
	// condition that says what was left out.
	trimMargin = 2 << 10
	// conditionTrimmed is the condition of a status that had to leave something out.
	conditionTrimmed = "StatusTrimmed"
)

// trim leaves out manifests until the work fits into etcd, those that are well
// first, and all of them where the API server refuses them; it says so in a condition.
// It returns the size of the work then, in bytes.
func trim(it workconvert.Work, now metav1.Time, refusal string) (stored int) {
	conditions := it.Conditions()
	if old := meta.FindStatusCondition(*conditions, conditionTrimmed); old != nil {
		now = old.LastTransitionTime
		meta.RemoveStatusCondition(conditions, conditionTrimmed)
	}
	stored = workconvert.JSONSize(it.Object())
	over, reason, why := stored-statuswriter.MaxObjectBytes, "SizeLimit", "the status is too large to be stored"
	switch {
	case refusal != "":
		over, reason, why = stored, "Refused", refusal
	case over <= 0:
		return stored
	}
	left, total := it.DropManifests(over + trimMargin)
	*conditions = append(*conditions, metav1.Condition{
		Type: conditionTrimmed, Status: metav1.ConditionTrue, Reason: reason,
		Message:            fmt.Sprintf("%d of %d manifests are left out: %s", total-left, total, why),
		ObservedGeneration: workconvert.ObservedGeneration(*conditions), LastTransitionTime: now,
	})
	return min(stored, statuswriter.MaxObjectBytes)
}
