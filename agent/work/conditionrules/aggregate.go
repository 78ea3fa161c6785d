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

// IsRuleCondition reports whether a rule has set a condition of a manifest or of a work: by its
// reason, as in OCM.
func IsRuleCondition(c metav1.Condition) bool {
	return strings.HasPrefix(c.Reason, reasonPrefix) || c.Type == TypeHealthy && isHealthReason(c.Reason)
}

// RemoveStale returns the conditions without those that rules have set for another
// generation. It does not change its argument.
func RemoveStale(conditions []metav1.Condition, generation int64) []metav1.Condition {
	stale := func(c metav1.Condition) bool { return IsRuleCondition(c) && c.ObservedGeneration != generation }
	if !slices.ContainsFunc(conditions, stale) {
		return conditions
	}
	return slices.DeleteFunc(slices.Clone(conditions), stale)
}

// Aggregate returns the work's conditions, made of those that rules have set on its manifests
// for this generation, in the order in which their types first occur. Types beyond the
// number that one manifest may have are left out. The conditions have no time.
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

// aggregate aggregates the manifests' conditions of one type.
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

// statusPriority orders statuses, of which the highest decides. A work progresses while
// one of its manifests does; any other condition is true only if it is true for all.
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
