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
// the manifests beside it do not wait for it.
func TestRulesThatAreWrongOrNeverEndAreTold(t *testing.T) {
	const (
		synced  = "StatusFeedbackSynced"
		unread  = "StatusFeedbackSyncFailed"
		failed  = "ConditionRuleExpressionError"
		jq      = "AppliedManifestSSAIgnoreFieldError"
		endless = "1000000000000"
		// Which of the two comes first depends on the machine.
		tooMuch = "cost limit exceeded|running out of time|running out of cost"
	)
	all := func(depth int) string {
		return strings.Repeat("object.data.all(a, ", depth) + "a != ''" + strings.Repeat(")", depth)
	}
	for label, tc := range map[string]struct {
		reason                  string
		option                  workv1.ManifestConfigOption
		condition, because, has string
	}{
		"a path that cannot be read":       {reason: "OCM's words", option: reads(".data["), condition: synced, because: unread, has: "failed to parse json path"},
		"a path without end":               {reason: "the parser recurses", option: reads(strings.Repeat(".a", 5000)), condition: synced, because: unread, has: "path is longer than"},
		"a path that descends twice":       {reason: "walks the object once for each of its parts", option: reads("..x..y"), condition: synced, because: unread, has: "recursive descent"},
		"a path of unions":                 {reason: "they multiply", option: reads(".a" + strings.Repeat("[0,0]", 40)), condition: synced, because: unread, has: "combinations"},
		"a path to a structure":            {reason: "without the gate", option: reads(".data"), condition: synced, because: unread, has: "type object is not supported"},
		"paths of which one is wrong":      {reason: "the others are read", option: reads(".data.key-1", ".data["), condition: synced, because: unread, has: "failed to parse json path"},
		"well-known values of a ConfigMap": {reason: "OCM's words", option: workv1.ManifestConfigOption{FeedbackRules: []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}}, condition: synced, because: unread, has: "cannot find the wellknown statuses"},

		"CEL that cannot be read":     {reason: "says where", option: judges("object.("), condition: "Odd", because: failed, has: "Syntax error"},
		"CEL of an unknown variable":  {reason: "says which", option: judges("subject.a == 1"), condition: "Odd", because: failed, has: "undeclared reference"},
		"CEL that is no answer":       {reason: "says what it is", option: judges("'text'"), condition: "Odd", because: failed, has: "not bool"},
		"CEL that loops in loops":     {reason: "its cost is bounded", option: judges(all(5)), condition: "Odd", because: failed, has: tooMuch},
		"CEL that makes large values": {reason: "their cost is bounded", option: judges("[1,2,3,4,5,6,7,8,9].map(a, object.data.map(b, object.data.map(c, object.data.map(d, b + c + d)))).size() > 0"), condition: "Odd", because: failed, has: tooMuch},
		"CEL that searches for long":  {reason: "the cost of one call is bounded", option: judges("object.data.exists(a, object.data.exists(b, object.data.exists(c, (a + b + c).matches('(a*)*(b*)*c'))))"), condition: "Odd", because: failed, has: tooMuch},
		"CEL that nests":              {reason: "the parser recurses", option: judges(strings.Repeat("(", 5000) + "true" + strings.Repeat(")", 5000)), condition: "Odd", because: failed, has: "recursion"},
		"CEL without end":             {reason: "its length is bounded", option: judges("true" + strings.Repeat(" || true", 5000)), condition: "Odd", because: failed, has: "longer than"},
		"a hundred that cost much":    {reason: "they share a budget", option: judges(repeated(100, "object.data.all(a, object.data.all(b, object.data.all(c, size(a) < 0 || true)))")...), condition: "Odd", because: failed, has: tooMuch},

		"jq that cannot be read":         {reason: "OCM's words", option: queries(".data["), condition: conditionApplied, because: jq, has: "JQ expression error in '.data['"},
		"jq that calls itself":           {reason: "not permitted", option: queries("def f: f; f"), condition: conditionApplied, because: jq, has: "not permitted"},
		"jq that recurses":               {reason: "its steps are bounded", option: queries("recurse(.)"), condition: conditionApplied, because: jq, has: "expression took more than"},
		"jq that recurses, in brackets":  {reason: "its steps are bounded", option: queries(`.data | select([recurse(.)] | length > 0)`), condition: conditionApplied, because: jq, has: "expression took more than"},
		"jq that counts":                 {reason: "its steps are bounded", option: queries(`.data | select(last(range(` + endless + `)) > 0)`), condition: conditionApplied, because: jq, has: "expression took more than"},
		"jq that counts to make a list":  {reason: "its steps are bounded", option: queries(`.data | select([range(` + endless + `)] | length > 0)`), condition: conditionApplied, because: jq, has: "expression took more than"},
		"jq that waits for what is not":  {reason: "its steps are bounded", option: queries(`.data | select(all(range(` + endless + `); . >= 0))`), condition: conditionApplied, because: jq, has: "expression took more than"},
		"jq that multiplies":             {reason: "not permitted", option: queries(`.data | select("x" * 1000000000 | length > 0)`), condition: conditionApplied, because: jq, has: "not permitted"},
		"jq that loops until":            {reason: "not permitted", option: queries(`.data | select(until(false; .) > 0)`), condition: conditionApplied, because: jq, has: "not permitted"},
		"jq that leaves nothing":         {reason: "there has to be an object", option: queries("."), condition: conditionApplied, because: jq, has: "JQ expression error in '.'"},
		"a pointer that is none":         {reason: "OCM's words", option: workv1.ManifestConfigOption{UpdateStrategy: ignoring(workv1.IgnoreField{JSONPointers: []string{"data/k"}})}, condition: conditionApplied, because: jq, has: "JSON Pointer error in 'data/k'"},
		"a pointer that is none, always": {reason: "it counts for either condition", option: workv1.ManifestConfigOption{UpdateStrategy: ignoring(workv1.IgnoreField{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPointers: []string{"data/k"}})}, condition: conditionApplied, because: jq, has: "JSON Pointer error in 'data/k'"},
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

func repeated(n int, text string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = text
	}
	return out
}

// The API bounds neither how many rules a manifest has nor what they are called.
func TestManyRulesOfOneManifestAreTold(t *testing.T) {
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
