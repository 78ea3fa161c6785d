// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
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
func trim(it item, now metav1.Time, refusal string) (stored int) {
	conditions := it.conditions()
	if old := meta.FindStatusCondition(*conditions, conditionTrimmed); old != nil {
		now = old.LastTransitionTime
		meta.RemoveStatusCondition(conditions, conditionTrimmed)
	}
	stored = jsonSize(it.object())
	over, reason, why := stored-statuswriter.MaxObjectBytes, "SizeLimit", "the status is too large to be stored"
	switch {
	case refusal != "":
		over, reason, why = stored, "Refused", refusal
	case over <= 0:
		return stored
	}
	left, total := it.dropManifests(over + trimMargin)
	*conditions = append(*conditions, metav1.Condition{
		Type: conditionTrimmed, Status: metav1.ConditionTrue, Reason: reason,
		Message:            fmt.Sprintf("%d of %d manifests are left out: %s", total-left, total, why),
		ObservedGeneration: workconvert.ObservedGeneration(*conditions), LastTransitionTime: now,
	})
	return min(stored, statuswriter.MaxObjectBytes)
}

// dropEntries returns the entries of a status without some of them, so that their JSON
// is by so many bytes shorter. Those that are well go first, the last before the
// first.
func dropEntries[M any](all []M, by int, of func(M) []metav1.Condition) []M {
	sizes := make([]int, len(all))
	room := -by
	for i := range all {
		sizes[i] = jsonSize(all[i]) + 1
		room += sizes[i]
	}
	keep := make([]bool, len(all))
	for _, well := range []bool{false, true} {
		for i := range all {
			if areAllTrue(of(all[i])) == well && sizes[i] <= room {
				keep[i] = true
				room -= sizes[i]
			}
		}
	}
	var left []M
	for i := range all {
		if keep[i] {
			left = append(left, all[i])
		}
	}
	return left
}

func areAllTrue(conditions []metav1.Condition) bool {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// jsonSize in bytes as JSON.
func jsonSize(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		return statuswriter.MaxObjectBytes // cannot be written either way
	}
	return len(raw)
}
