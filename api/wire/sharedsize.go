// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
)

// maxWaiting bounds how many of the waiting objects are named.
const maxWaiting = 3

// SharedSize is a number of objects, and the bytes of their contents.
type SharedSize struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Plus returns the sum of two sizes.
func (s SharedSize) Plus(more SharedSize) SharedSize {
	return SharedSize{Objects: s.Objects + more.Objects, Bytes: s.Bytes + more.Bytes}
}

// Minus returns the difference of two sizes.
func (s SharedSize) Minus(less SharedSize) SharedSize {
	return SharedSize{Objects: s.Objects - less.Objects, Bytes: s.Bytes - less.Bytes}
}

// Exceeded returns why a write exceeds a quota that changes an object's size from has to wants
// beside the others; empty if it does not. A write that neither creates an object nor makes
// one larger never does.
func (s SharedSize) Exceeded(others, has, wants SharedSize) (reason string) {
	all := others.Plus(wants)
	switch {
	case wants.Objects > has.Objects && all.Objects > s.Objects:
		return syncv1alpha1.ReasonTooManyObjects
	case wants.Bytes > has.Bytes && all.Bytes > s.Bytes:
		return syncv1alpha1.ReasonTooManyBytes
	}
	return ""
}

// Limit returns the quota of a reason.
func (s SharedSize) Limit(reason string) string {
	if reason == syncv1alpha1.ReasonTooManyObjects {
		return fmt.Sprintf("%d objects", s.Objects)
	}
	return resource.NewQuantity(s.Bytes, resource.BinarySI).String()
}

// QuotaReached returns the problem of the named objects, sorted, that wait for a limit of a
// side.
func QuotaReached(reason, side, limit string, names []string) *ShareProblem {
	named, more := names, ""
	if len(names) > maxWaiting {
		named, more = names[:maxWaiting], fmt.Sprintf(" and %d more", len(names)-maxWaiting)
	}
	return NewShareProblem(reason, fmt.Sprintf("%s: the quota of %s is reached, and these wait: %s%s", side, limit, strings.Join(named, ", "), more))
}
