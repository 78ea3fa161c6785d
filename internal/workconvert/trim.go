// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dropEntries returns the entries of a status without some of them, so that their JSON
// is by so many bytes shorter. Those that are well go first, the last before the
// first.
func dropEntries[M any](all []M, by int, of func(M) []metav1.Condition) []M {
	sizes := make([]int, len(all))
	room := -by
	for i := range all {
		sizes[i] = JSONSize(all[i]) + 1
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

// JSONSize is the size of a value in bytes as JSON.
func JSONSize(v any) int {
	raw, err := json.Marshal(v)
	if err != nil {
		return 1 << 20 // cannot be written either way
	}
	return len(raw)
}
