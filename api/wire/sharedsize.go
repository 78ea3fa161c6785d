// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
)

// maxWaiting bounds the objects that are named of those that wait for room.
const maxWaiting = 3

// SharedSize is that of objects together: how many there are, and the bytes of their
// contents.
type SharedSize struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Plus is the size with further objects.
func (s SharedSize) Plus(more SharedSize) SharedSize {
	return SharedSize{Objects: s.Objects + more.Objects, Bytes: s.Bytes + more.Bytes}
}

// Minus is the size without some of the objects.
func (s SharedSize) Minus(less SharedSize) SharedSize {
	return SharedSize{Objects: s.Objects - less.Objects, Bytes: s.Bytes - less.Bytes}
}

// Exceeded is the reason for which a write is beyond a quota that makes of an object which
// has one size one that has another, beside the others that there are; empty where it is
// not. What makes no object and none larger never is, however much there is.
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

// Limit is what a quota says for a reason.
func (s SharedSize) Limit(reason string) string {
	if reason == syncv1alpha1.ReasonTooManyObjects {
		return fmt.Sprintf("%d objects", s.Objects)
	}
	return resource.NewQuantity(s.Bytes, resource.BinarySI).String()
}

// QuotaReached says which objects wait for room within a limit of a side, by their names,
// sorted.
func QuotaReached(reason, side, limit string, names []string) *ShareProblem {
	named, more := names, ""
	if len(names) > maxWaiting {
		named, more = names[:maxWaiting], fmt.Sprintf(" and %d more", len(names)-maxWaiting)
	}
	return NewShareProblem(reason, fmt.Sprintf("%s: the quota of %s is reached, and these wait: %s%s", side, limit, strings.Join(named, ", "), more))
}
