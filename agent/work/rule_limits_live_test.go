// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// reads is an option of paths, named a, b and so on.
func reads(paths ...string) workv1.ManifestConfigOption {
	var list []workv1.JsonPath
	for i, p := range paths {
		list = append(list, workv1.JsonPath{Name: string(rune('a' + i)), Path: p})
	}
	return workv1.ManifestConfigOption{FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: list}}}
}

// judges is an option of one rule of expressions.
func judges(expressions ...string) workv1.ManifestConfigOption {
	return workv1.ManifestConfigOption{ConditionRules: []workv1.ConditionRule{{
		Condition: "Odd", Type: workv1.CelConditionExpressionsType, CelExpressions: expressions,
	}}}
}

// queries is an option of one jq expression.
func queries(expression string) workv1.ManifestConfigOption {
	return workv1.ManifestConfigOption{UpdateStrategy: ignoring(workv1.IgnoreField{JQPathExpressions: []string{expression}})}
}

// large is the data of a ConfigMap of that many keys.
func large(keys int) (data []string) {
	for i := range keys {
		data = append(data, fmt.Sprintf("key-%d", i), "value")
	}
	return data
}

// hasAny tells whether a text has one of others, which stand between bars.
func hasAny(text, others string) bool {
	return slices.ContainsFunc(strings.Split(others, "|"), func(s string) bool { return strings.Contains(text, s) })
}

// What cannot be read, or takes too long to read, is said where it belongs, and
// the manifests beside it do not wait for it. All that is wrong or takes too long is in
// the tests of agent/work/feedback, rule and ignore; here is one of each.
func TestWrongOrEndlessRulesAreReported(t *testing.T) {
	for label, tc := range map[string]struct {
		reason                  string
		option                  workv1.ManifestConfigOption
		condition, because, has string
	}{
		"paths of which one is wrong": {
			reason: "OCM's words", option: reads(".data.key-1", ".data["),
			condition: "StatusFeedbackSynced", because: "StatusFeedbackSyncFailed", has: "failed to parse json path",
		},
		"CEL that searches for long": {
			reason: "the cost of one call is bounded", condition: "Odd", because: "ConditionRuleExpressionError",
			option: judges("object.data.exists(a, object.data.exists(b, object.data.exists(c, (a + b + c).matches('(a*)*(b*)*c'))))"),
			has:    "cost limit exceeded|running out of time|running out of cost", // which comes first depends on the machine
		},
		"jq that counts to make a list": {
			reason: "its steps are bounded", condition: conditionApplied, because: "AppliedManifestSSAIgnoreFieldError",
			option: queries(`.data | select([range(1000000000000)] | length > 0)`), has: "expression took more than",
		},
	} {
		t.Run(label, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			tc.option.ResourceIdentifier = workv1.ResourceIdentifier{Resource: "configmaps", Namespace: c.namespace, Name: "odd"}
			w := wire.Work{}
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{tc.option}
			odd, plain := c.name("odd"), c.name("plain")
			began := time.Now()
			h.ask(odd, 1, w, c.configMap("odd", large(200)...), c.configMap("beside"))
			h.applies(c, plain, 1, c.configMap("plain"))
			c.eventually(tc.reason, func() bool {
				m := h.said(odd).Manifests
				if len(m) != 2 {
					return false
				}
				got := meta.FindStatusCondition(m[0].Conditions, tc.condition)
				return got != nil && got.Status == metav1.ConditionFalse && got.Reason == tc.because && hasAny(got.Message, tc.has)
			})
			if took := time.Since(began); took > soon {
				t.Errorf("%s: it is told after %s", tc.reason, took)
			}
			beside := meta.FindStatusCondition(h.said(odd).Manifests[1].Conditions, conditionApplied)
			if beside == nil || beside.Status != metav1.ConditionTrue || c.get("beside") == nil {
				t.Errorf("%s: the manifest beside it: %+v", tc.reason, beside)
			}
			if made := c.get("odd") != nil; made == (tc.condition == conditionApplied) {
				t.Errorf("%s: the object was made: %t", tc.reason, made)
			}
			h.drop(c, odd, 1)
		})
	}
}

// The API bounds neither how many rules a manifest has nor what they are called.
func TestManyRulesOfOneManifestAreReported(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	o := c.option(workv1.ManifestConfigOption{})
	for i := range 100 {
		o.ConditionRules = append(o.ConditionRules, workv1.ConditionRule{
			Condition: fmt.Sprintf("Rule%d", i), Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"true"},
		})
	}
	w := wire.Work{}
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{o}
	work := c.name("w")
	h.ask(work, 1, w, c.configMap("cm"))
	h.says(c, work, 1, conditionApplied, metav1.ConditionTrue)
	h.says(c, work, 1, "Rule0", metav1.ConditionTrue)
	h.says(c, work, 1, "Rule32", metav1.ConditionUnknown)
	h.drop(c, work, 1)
}
