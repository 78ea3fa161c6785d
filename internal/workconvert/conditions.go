// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// Types of conditions that agents report and the API's module has no name for.
const (
	TypeHealthy         = "Healthy"
	TypeFeedbackSynced  = "StatusFeedbackSynced"
	TypeSharedResources = "SharedResources"
)

// ObservedGeneration is the highest generation that the conditions of a work speak of.
// Conditions that others may set do not count.
func ObservedGeneration(conditions []metav1.Condition) int64 {
	var highest int64
	for _, c := range conditions {
		switch c.Type {
		case workv1.WorkApplied, workv1.WorkAvailable, workv1.WorkDeleting:
			highest = max(highest, c.ObservedGeneration)
		}
	}
	return highest
}

// setSuspensionAndDrift says that what is asked for is suspended, or only compared, if the work's
// annotations do.
func setSuspensionAndDrift(asked *wire.Work, annotations map[string]string, conditions []metav1.Condition) {
	asked.ReportDrift = wire.ReportsDrift(annotations)
	if !wire.Suspends(annotations) {
		return
	}
	asked.Suspended = true
	if applied, ok := findCondition(conditions, workv1.WorkApplied); ok {
		asked.AppliedGeneration = applied.ObservedGeneration
	}
}

// isSuspension tells the condition of a suspended work from one of that type that a rule
// set.
func isSuspension(c metav1.Condition) bool {
	return c.Type == wire.ConditionSuspended && c.Reason == wire.ReasonSuspended
}

// keepsAppliedCondition tells whether what the hub has of Applied stays where a report does not
// say it: an agent that was restarted while a work is suspended knows nothing of it, and
// one that compares applies nothing.
func keepsAppliedCondition(r wire.WorkStatus) bool {
	return slices.ContainsFunc(r.Conditions, func(c metav1.Condition) bool { return isSuspension(c) || wire.IsDriftReport(c) })
}

// conditionMerger merges lists of conditions.
type conditionMerger struct {
	now metav1.Time
	// isObsolete tells of a condition that is reported no more that it was ours.
	isObsolete func(metav1.Condition) bool
	// isReplaced tells that a condition is not the one of before, although its type is.
	// Nil: it always is.
	isReplaced func(before, next metav1.Condition) bool
}

// merge puts next in the places of what old has of the same types and the rest at
// the end. Neither argument is changed.
func (m conditionMerger) merge(old, next []metav1.Condition) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(old)+len(next))
	for _, before := range old {
		c, reported := findCondition(next, before.Type)
		switch {
		case !reported && m.isObsolete(before):
		case !reported:
			out = append(out, before)
		case m.isReplaced != nil && m.isReplaced(before, c):
		default:
			c.LastTransitionTime = m.now
			if c.Status == before.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
			out = append(out, c)
		}
	}
	for _, c := range next {
		if _, placed := findCondition(out, c.Type); placed {
			continue
		}
		c.LastTransitionTime = m.now
		out = append(out, c)
	}
	return out
}

func findCondition(conditions []metav1.Condition, kind string) (metav1.Condition, bool) {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return metav1.Condition{}, false
	}
	return conditions[i], true
}
