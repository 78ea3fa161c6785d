// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

// IsRuleCondition tells a condition that a rule set, on a manifest or on a work, by its
// reason as OCM does.
func IsRuleCondition(c metav1.Condition) bool {
	return strings.HasPrefix(c.Reason, reasonPrefix) || c.Type == TypeHealthy && isHealthReason(c.Reason)
}

// RemoveStale returns conditions without those that rules set for another generation.
// It does not change its argument.
func RemoveStale(conditions []metav1.Condition, generation int64) []metav1.Condition {
	stale := func(c metav1.Condition) bool { return IsRuleCondition(c) && c.ObservedGeneration != generation }
	if !slices.ContainsFunc(conditions, stale) {
		return conditions
	}
	return slices.DeleteFunc(slices.Clone(conditions), stale)
}

// Aggregate makes the work's conditions of those that rules set on its manifests
// for this generation, in the order in which the types are first met. Others are
// left out, and so are types beyond those that one manifest may have. The conditions
// bear no time.
func Aggregate(manifests [][]metav1.Condition, generation int64) []metav1.Condition {
	var order []string
	byType := map[string]*aggregate{}
	beyond := ""
	for _, conditions := range manifests {
		for _, c := range conditions {
			if !IsRuleCondition(c) || c.ObservedGeneration != generation {
				continue
			}
			if byType[c.Type] == nil {
				if len(order) >= maxRules && c.Type != TypeHealthy {
					beyond = cmp.Or(beyond, c.Type)
					continue
				}
				byType[c.Type] = &aggregate{}
				order = append(order, c.Type)
			}
			byType[c.Type].add(c)
		}
	}
	out := make([]metav1.Condition, 0, len(order))
	for _, kind := range order {
		out = append(out, byType[kind].condition(kind, generation))
	}
	if beyond != "" {
		out = append(out, tooManyRules(beyond, generation))
	}
	return out
}

// aggregate is what the manifests' conditions of one type say.
type aggregate struct {
	count   int
	status  metav1.ConditionStatus
	message string
}

func (t *aggregate) add(c metav1.Condition) {
	t.count++
	if t.count == 1 || statusPriority(c.Type, c.Status) > statusPriority(c.Type, t.status) {
		t.status = c.Status
	}
	t.message = c.Message
}

// statusPriority orders statuses: the heaviest decides. Something still progresses while
// one of its parts does; anything else holds only if it holds for all.
func statusPriority(kind string, s metav1.ConditionStatus) int {
	decisive := metav1.ConditionFalse
	if kind == workv1.WorkProgressing {
		decisive = metav1.ConditionTrue
	}
	switch s {
	case decisive:
		return 2
	case metav1.ConditionUnknown:
		return 1
	default:
		return 0
	}
}

func (t *aggregate) condition(kind string, generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: kind, Status: t.status, Reason: ReasonAggregated, Message: t.message, ObservedGeneration: generation,
	}
	if t.count > 1 {
		c.Message = fmt.Sprintf("Aggregated from %d manifest conditions", t.count)
	}
	return c
}
