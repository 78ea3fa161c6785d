// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	workv1 "open-cluster-management.io/api/work/v1"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("object: %v", err)
	}
	return u
}

func celRule(condition string, expressions ...string) workv1.ConditionRule {
	return workv1.ConditionRule{Condition: condition, Type: workv1.CelConditionExpressionsType, CelExpressions: expressions}
}

func wellKnownRule(condition string) workv1.ConditionRule {
	return workv1.ConditionRule{Condition: condition, Type: workv1.WellKnownConditionsType}
}

const (
	thing = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"host":"10.0.0.7","q":"2Gi","v":"1.2.3","u":"https://a.example/x"},
		"status":{"n":3,"list":[3,1,2],"conditions":[{"type":"Ready","status":"True"}]}}`
	finished = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"status":{"conditions":[{"type":"Failed","status":"True"}]}}`
	running  = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"status":{"conditions":[{"type":"Complete","status":"False"}]}}`
	pod      = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"status":{"phase":"Succeeded"}}`
	waiting  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"status":{"phase":"Pending"}}`
)

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 7}
}

func TestEval(t *testing.T) {
	with := func(r workv1.ConditionRule, message, expression string) workv1.ConditionRule {
		r.Message, r.MessageExpression = message, expression
		return r
	}
	holds := func(message string) []metav1.Condition {
		return []metav1.Condition{condition("X", "True", ReasonEvaluated, message)}
	}
	cases := map[string]struct {
		reason string
		object string
		rules  []workv1.ConditionRule
		want   []metav1.Condition
	}{
		"a Job that failed is complete": {reason: "OCM's rule", object: finished, rules: []workv1.ConditionRule{wellKnownRule("Complete")}, want: []metav1.Condition{condition("Complete", "True", ReasonEvaluated, "Job is finished")}},
		"a Job that runs is not":        {reason: "OCM's rule", object: running, rules: []workv1.ConditionRule{wellKnownRule("Complete")}, want: []metav1.Condition{condition("Complete", "False", ReasonEvaluated, "Job is not finished")}},
		"a Pod that ended is complete":  {reason: "OCM's rule", object: pod, rules: []workv1.ConditionRule{wellKnownRule("Complete")}, want: []metav1.Condition{condition("Complete", "True", ReasonEvaluated, "Pod is in phase Succeeded")}},
		"a Pod that waits is not":       {reason: "OCM's rule", object: waiting, rules: []workv1.ConditionRule{wellKnownRule("Complete")}, want: []metav1.Condition{condition("Complete", "False", ReasonEvaluated, "Pod is in phase Pending")}},
		"a well-known message may be replaced": {
			reason: "the rule's message counts", object: pod, rules: []workv1.ConditionRule{with(wellKnownRule("Complete"), "done", "")},
			want: []metav1.Condition{condition("Complete", "True", ReasonEvaluated, "done")},
		},
		"a well-known message may be an expression": {
			reason: "it knows object and result", object: pod, rules: []workv1.ConditionRule{with(wellKnownRule("Complete"), "done", "object.metadata.name + ' ' + string(result)")},
			want: []metav1.Condition{condition("Complete", "True", ReasonEvaluated, "a true")},
		},
		"a kind without the well-known condition": {reason: "gives none", object: thing, rules: []workv1.ConditionRule{wellKnownRule("Complete"), wellKnownRule("Odd"), wellKnownRule("")}, want: []metav1.Condition{}},
		"health of a Pod that waits":              {reason: "kstatus", object: waiting, rules: []workv1.ConditionRule{wellKnownRule("Healthy")}, want: []metav1.Condition{condition("Healthy", "False", "InProgress", "Pod is in the Pending phase")}},
		"health of a Job that failed":             {reason: "kstatus", object: finished, rules: []workv1.ConditionRule{wellKnownRule("Healthy")}, want: []metav1.Condition{condition("Healthy", "False", "Failed", "Job Failed. failed: 0/1")}},
		"health of any kind":                      {reason: "kstatus", object: thing, rules: []workv1.ConditionRule{wellKnownRule("Healthy")}, want: []metav1.Condition{condition("Healthy", "True", "Current", "Resource is Ready")}},
		"health of what is being deleted": {
			reason: "kstatus", object: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"}}`,
			rules: []workv1.ConditionRule{wellKnownRule("Healthy")}, want: []metav1.Condition{condition("Healthy", "False", "Terminating", "Resource scheduled for deletion")},
		},
		"health that cannot be read": {
			reason: "is unknown", object: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","generation":1},"spec":{"replicas":"many"},"status":{"observedGeneration":1,"conditions":"no"}}`,
			rules: []workv1.ConditionRule{wellKnownRule("Healthy")}, want: []metav1.Condition{condition("Healthy", "Unknown", "Unknown", "Resource status is malformed")},
		},

		"an expression that holds":           {reason: "default message", object: thing, rules: []workv1.ConditionRule{celRule("X", "object.status.n == 3")}, want: holds("Manifest is X")},
		"an expression that does not":        {reason: "default message", object: thing, rules: []workv1.ConditionRule{celRule("X", "object.status.n > 3")}, want: []metav1.Condition{condition("X", "False", ReasonEvaluated, "Manifest is not X")}},
		"several that hold":                  {reason: "AND", object: thing, rules: []workv1.ConditionRule{celRule("X", "object.status.n == 3", "true")}, want: holds("Manifest is X")},
		"several of which one does not":      {reason: "AND; what follows is not asked", object: thing, rules: []workv1.ConditionRule{celRule("X", "has(object.nothing)", "object.nothing == 1")}, want: []metav1.Condition{condition("X", "False", ReasonEvaluated, "Manifest is not X")}},
		"a message":                          {reason: "replaces the default", object: thing, rules: []workv1.ConditionRule{with(celRule("X", "true"), "m", "")}, want: holds("m")},
		"a message expression":               {reason: "overrides the message", object: thing, rules: []workv1.ConditionRule{with(celRule("X", "true"), "m", "result ? 'n is ' + string(object.status.n) : 'no'")}, want: holds("n is 3")},
		"a message expression without words": {reason: "leaves the message", object: thing, rules: []workv1.ConditionRule{with(celRule("X", "true"), "m", "''")}, want: holds("m")},
		"a message that is no text": {
			reason: "is an error", object: thing, rules: []workv1.ConditionRule{with(celRule("X", "true"), "m", "1")},
			want: []metav1.Condition{condition("X", "False", ReasonExpressionError, `message expression "1" returned int, not string`)},
		},
		"an expression that is no bool": {reason: "is an error", object: thing, rules: []workv1.ConditionRule{celRule("X", "1")}, want: []metav1.Condition{condition("X", "False", ReasonExpressionError, `expression "1" returned int, not bool`)}},
		"a key that is not there":       {reason: "is an error", object: thing, rules: []workv1.ConditionRule{celRule("X", "object.status.m == 1")}, want: []metav1.Condition{condition("X", "False", ReasonExpressionError, "no such key: m")}},
		"an expression that is too long": {
			reason: "is an error", object: thing, rules: []workv1.ConditionRule{celRule("X", strings.Repeat(" ", maxExpression)+"1")},
			want: []metav1.Condition{condition("X", "False", ReasonExpressionError, "expression is longer than 16384 bytes")},
		},
		"a rule type that is not known": {
			reason: "OCM's words", object: thing, rules: []workv1.ConditionRule{{Condition: "X", Type: "Magic"}, celRule("Y", "true")},
			want: []metav1.Condition{condition("X", "Unknown", ReasonInvalid, "unrecognized condition rule type Magic"), condition("Y", "True", ReasonEvaluated, "Manifest is Y")},
		},
		"the libraries": {
			reason: "OCM's set", object: thing,
			rules: []workv1.ConditionRule{celRule("X",
				"object.?status.n.orValue(0) == 3", "object.spec.v.split('.').size() == 3", "object.status.list.max() == 3",
				"'a1'.find('[0-9]') == '1'", "url(object.spec.u).getHost() == 'a.example'", "quantity(object.spec.q).isGreaterThan(quantity('1Gi'))",
				"ip(object.spec.host).family() == 4", "cidr('10.0.0.0/24').containsIP(object.spec.host)", "!format.dns1123Label().validate('a').hasValue()",
				"semver(object.spec.v).isGreaterThan(semver('1.2.2'))", "hasConditions(object.status)", "hasConditions(object)", "!hasConditions(object.spec)",
				"!hasConditions({'conditions': 1})", "!hasConditions('x')", "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", "object.status.n > 2.5")},
			want: holds("Manifest is X"),
		},
	}
	compiler := NewCompiler()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := compiler.Compile(tc.rules)
			for range 2 {
				if diff := cmp.Diff(tc.want, set.Eval(object(t, tc.object), 7)); diff != "" {
					t.Errorf("%s: -want +got\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestEvalReportsCELErrors(t *testing.T) {
	cases := map[string]struct{ reason, expression, want string }{
		"a syntax error":        {"says where", "object.(", "Syntax error"},
		"an unknown variable":   {"says what", "subject.a", "undeclared reference to 'subject'"},
		"a search for too much": {"is ended by the cost of one call", "object.s.contains(object.s)", "cost limit exceeded"},
		"a nest without end":    {"does not overflow the stack", strings.Repeat("(", 5000) + "true" + strings.Repeat(")", 5000), "recursion"},
		"a type that is wrong":  {"says what", "'a' + 1 == 2", "no matching overload"},
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"s": strings.Repeat("x", 1<<17)}}
	compiler := newTestCompiler()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := compiler.Compile([]workv1.ConditionRule{celRule("X", tc.expression)}).Eval(obj, 1)
			if len(got) != 1 || got[0].Status != metav1.ConditionFalse || got[0].Reason != ReasonExpressionError || !strings.Contains(got[0].Message, tc.want) {
				t.Errorf("%s: %v", tc.reason, got)
			}
		})
	}
}

// Each call stays below its own limit; the manifest's budget ends the sum.
func TestRulesOfManifestShareCostBudget(t *testing.T) {
	list := make([]any, 100)
	for i := range list {
		list[i] = int64(i)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"l": list}}
	rule := celRule("X", "object.l.all(a, a >= 0)")
	set := newTestCompiler().Compile([]workv1.ConditionRule{rule, rule, rule, wellKnownRule("Healthy")})
	if set.budget != celconfig.RuntimeCELCostBudget {
		t.Errorf("budget %d is not that of Kubernetes", set.budget)
	}
	set.budget = 700
	for range 2 { // every evaluation has the whole budget
		got := set.Eval(obj, 1)
		if first, last := got[0], got[2]; first.Reason != ReasonEvaluated || last.Message != errBudget.Error() || last.Reason != ReasonExpressionError {
			t.Errorf("first %v, last %v", first, last)
		}
		if got[3].Reason != "Current" {
			t.Errorf("a rule without an expression costs nothing: %v", got[3])
		}
	}
}

// What CEL calls cheap may be slow; other rules of the manifest are not run then.
func TestRulesOfManifestShareTimeLimit(t *testing.T) {
	list := make([]any, 3000)
	for i := range list {
		list[i] = int64(i)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"l": list}}
	cheap := celRule("Cheap", "true")
	set := newTestCompiler().Compile([]workv1.ConditionRule{cheap, celRule("Slow", "object.l.all(a, object.l.all(b, true))"), cheap, wellKnownRule("Healthy")})
	if set.time != maxTime || set.Eval(obj, 1)[0].Reason != ReasonEvaluated {
		t.Errorf("time %s", set.time)
	}
	set.time = time.Nanosecond
	got := set.Eval(obj, 1)
	set.rules = set.rules[1:]
	got = append(got[2:], set.Eval(obj, 1)[0])
	for i, c := range got {
		if want := i != 1; (c.Reason == ReasonExpressionError) != want || want && c.Message != "validation failed due to running out of time, the expressions of a manifest may take 1s" {
			t.Errorf("condition %v", c)
		}
	}
}

// TestTimeLimitExcludesStalls: an agent may be throttled.
func TestTimeLimitExcludesStalls(t *testing.T) {
	compiler := newTestCompiler()
	program, err := compiler.program("object.all(a, a >= 0)")
	if err != nil {
		t.Fatal(err)
	}
	r := &evaluation{compiler: compiler, budget: celconfig.RuntimeCELCostBudget, time: 200 * time.Millisecond}
	stalled := func() any {
		stall, cancel := context.WithTimeout(t.Context(), 2*r.time)
		defer cancel()
		<-stall.Done()
		return make([]int, 1000)
	}
	if value, err := r.runProgram(program, map[string]any{"object": stalled}); err != nil || value != types.True {
		t.Errorf("got %v, %v", value, err)
	}
}

// The cost of a call is told after it.
func TestEvalRefusesLargeObject(t *testing.T) {
	const message = "object is larger than 8388608 bytes, no expression is run on it"
	many := make([]any, maxObject)
	for label, tc := range map[string]struct {
		reason string
		value  any
		large  bool
	}{
		"text":      {reason: "counts with its length", value: strings.Repeat("x", maxObject), large: true},
		"less text": {reason: "is what an API server keeps", value: strings.Repeat("x", maxObject/2)},
		"values":    {reason: "count for one each", value: many, large: true},
		"keys":      {reason: "are text too", value: map[string]any{strings.Repeat("x", maxObject): true}, large: true},
	} {
		t.Run(label, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"v": tc.value}}
			spoken := wellKnownRule("Healthy")
			spoken.MessageExpression = "'m'"
			got := newTestCompiler().Compile([]workv1.ConditionRule{celRule("X", "true"), spoken, wellKnownRule("Healthy")}).Eval(obj, 1)
			for _, c := range got[:2] {
				if (c.Reason == ReasonExpressionError && c.Message == message) != tc.large {
					t.Errorf("%s: %v", tc.reason, c)
				}
			}
			if got[2].Reason != "Current" {
				t.Errorf("%s: a rule without an expression: %v", tc.reason, got[2])
			}
		})
	}
}

// The hub refuses a status with more conditions, or with one that is not valid.
func TestCompileDropsRulesWithInvalidType(t *testing.T) {
	numbered := func(from, to int) (out []workv1.ConditionRule) {
		for i := from; i < to; i++ {
			out = append(out, celRule(fmt.Sprintf("R%d", i), "true"))
		}
		return out
	}
	many := append([]workv1.ConditionRule{celRule("", "true"), celRule("not a type", "true"), wellKnownRule("?"), {Condition: "-", Type: "Magic"}, celRule(strings.Repeat("x", 317), "true")}, numbered(0, 40)...)
	compiler := newTestCompiler()
	got := compiler.Compile(append(many, wellKnownRule("Healthy"))).Eval(object(t, thing), 7)
	var want []metav1.Condition
	for i := range maxRules {
		want = append(want, condition(fmt.Sprintf("R%d", i), "True", ReasonEvaluated, fmt.Sprintf("Manifest is R%d", i)))
	}
	want = append(want, condition("Healthy", "True", "Current", "Resource is Ready"),
		condition("R32", "Unknown", ReasonInvalid, "only the first 32 rules of a manifest are evaluated"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if many[0].Condition != "" || len(many) != 45 {
		t.Error("the argument changed")
	}
	if got := compiler.Compile(many[:5]); !got.IsEmpty() {
		t.Errorf("rules %v are kept", got.rules)
	}
	if got := compiler.Compile(numbered(0, 32)).Eval(object(t, thing), 7); len(got) != 32 {
		t.Errorf("%d conditions", len(got))
	}
	if got := compiler.Compile([]workv1.ConditionRule{celRule("example.com/Up_to.date", "true")}).Eval(object(t, thing), 7); len(got) != 1 {
		t.Errorf("conditions %v", got)
	}
	total := Aggregate([][]metav1.Condition{want, {condition("Other", "True", ReasonEvaluated, "")}}, 7)
	if len(total) != maxRules+2 || total[maxRules].Type != "Healthy" || total[maxRules+1].Type != "R32" || total[maxRules+1].Reason != ReasonInvalid {
		t.Errorf("%d conditions of the work, the last are %v", len(total), total[maxRules:])
	}
}

func TestCompileWithoutCELCreatesNoEnvironment(t *testing.T) {
	compiler := &Compiler{environment: nil}
	if set := compiler.Compile(nil); !set.IsEmpty() || set.Eval(object(t, thing), 1) != nil {
		t.Error("no rules give conditions")
	}
	// A nil environment would panic if it were asked for.
	got := compiler.Compile([]workv1.ConditionRule{wellKnownRule("Complete"), wellKnownRule("Healthy")}).Eval(object(t, pod), 1)
	if len(got) != 2 {
		t.Errorf("conditions %v", got)
	}
}

func TestProgramCacheIsBoundedAndShared(t *testing.T) {
	compiler := newTestCompiler()
	var wait sync.WaitGroup
	for worker := range 2 {
		wait.Go(func() {
			for i := range maxPrograms {
				expression := strings.Repeat(" ", (i+worker)%(maxPrograms+8)) + "true"
				got := compiler.Compile([]workv1.ConditionRule{celRule("X", expression)}).Eval(object(t, thing), 1)
				if got[0].Status != metav1.ConditionTrue {
					t.Errorf("condition %v", got[0])
				}
			}
		})
	}
	wait.Wait()
	kept := compiler.programs
	if len(kept.byText) > maxPrograms || kept.length > maxCacheLength || kept.order.Len() != len(kept.byText) {
		t.Errorf("%d programs of %d bytes are kept", len(kept.byText), kept.length)
	}
}

func TestAggregate(t *testing.T) {
	c := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return condition(kind, status, ReasonEvaluated, message)
	}
	aggregated := func(kind string, status metav1.ConditionStatus, message string) []metav1.Condition {
		return []metav1.Condition{condition(kind, status, ReasonAggregated, message)}
	}
	old := c("X", "False", "old")
	old.ObservedGeneration = 6
	cases := map[string]struct {
		reason    string
		manifests [][]metav1.Condition
		want      []metav1.Condition
	}{
		"nothing":                  {reason: "no conditions", manifests: [][]metav1.Condition{nil, {condition("Applied", "True", "AppliedManifestComplete", "")}}, want: []metav1.Condition{}},
		"one manifest":             {reason: "its message", manifests: [][]metav1.Condition{{c("X", "True", "m")}, {}}, want: aggregated("X", "True", "m")},
		"False beats Unknown":      {reason: "OCM's rule", manifests: [][]metav1.Condition{{c("X", "Unknown", "")}, {c("X", "False", "")}, {c("X", "True", "")}}, want: aggregated("X", "False", "Aggregated from 3 manifest conditions")},
		"Unknown beats True":       {reason: "OCM's rule", manifests: [][]metav1.Condition{{c("X", "True", "")}, {c("X", "Unknown", "")}}, want: aggregated("X", "Unknown", "Aggregated from 2 manifest conditions")},
		"True progress beats all":  {reason: "OCM's rule", manifests: [][]metav1.Condition{{c("Progressing", "Unknown", "")}, {c("Progressing", "True", "")}, {c("Progressing", "False", "")}}, want: aggregated("Progressing", "True", "Aggregated from 3 manifest conditions")},
		"Unknown progress is next": {reason: "OCM's rule", manifests: [][]metav1.Condition{{c("Progressing", "False", "")}, {c("Progressing", "Unknown", "")}}, want: aggregated("Progressing", "Unknown", "Aggregated from 2 manifest conditions")},
		"another generation":       {reason: "does not count", manifests: [][]metav1.Condition{{old}, {c("X", "True", "new")}}, want: aggregated("X", "True", "new")},
		"health":                   {reason: "has other reasons", manifests: [][]metav1.Condition{{condition("Healthy", "True", "Current", "")}, {condition("Healthy", "False", "InProgress", "")}}, want: aggregated("Healthy", "False", "Aggregated from 2 manifest conditions")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Aggregate(tc.manifests, 7)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRemoveStaleRemovesConditionsOfOtherGenerations(t *testing.T) {
	old := condition("X", "True", ReasonEvaluated, "")
	old.ObservedGeneration = 6
	applied := condition("Applied", "True", "AppliedManifestComplete", "")
	applied.ObservedGeneration = 6
	now := condition("Healthy", "True", "Current", "")
	given := []metav1.Condition{applied, old, now}
	if diff := cmp.Diff([]metav1.Condition{applied, now}, RemoveStale(given, 7)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if given[1].Type != "X" {
		t.Error("the argument changed")
	}
}

func FuzzEval(f *testing.F) {
	for _, e := range []string{"object.status.n == 3", "hasConditions(object)", "object.status.list.map(x, x * 2).sum() > 1", "object[?'a'].hasValue()", "'a'.matches('(a+)+$')", "result", "object", "\"\\u0000\""} {
		f.Add(e)
	}
	compiler := newTestCompiler()
	f.Fuzz(func(t *testing.T, expression string) {
		r := celRule("X", expression)
		r.MessageExpression = expression
		got := compiler.Compile([]workv1.ConditionRule{r}).Eval(object(t, thing), 1)
		if len(got) != 1 || got[0].Reason == "" || len(got[0].Message) > maxMessage {
			t.Errorf("%q gives %v", expression, got)
		}
	})
}
