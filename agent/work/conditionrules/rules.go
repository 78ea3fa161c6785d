// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditionrules evaluates a ManifestWork's condition rules on an object, as Open
// Cluster Management's agent does, and aggregates the results for the work.
//
//   - A [Compiler] has one environment of CEL, created when the first expression is
//     evaluated, and a bounded number of programs, shared by all
//     rules with the same expression. An agent without CEL rules needs neither.
//   - A [Set] is the rules of one manifest. It is evaluated on every event of the
//     object.
//   - Besides OCM's rules there is the well-known rule Healthy, for every kind,
//     from kstatus.
//
// Expressions are bounded in length, in cost per call and in cost per manifest
// with the limits of the Kubernetes API server, and also in time per manifest and
// in the size of the object. The number of rules of a manifest is bounded.
package conditionrules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	workv1 "open-cluster-management.io/api/work/v1"
)

// Reasons of conditions that rules set; Healthy has the statuses of kstatus.
const (
	ReasonEvaluated       = "ConditionRuleEvaluated"
	ReasonExpressionError = "ConditionRuleExpressionError"
	ReasonInvalid         = "ConditionRuleInvalid"
	ReasonAggregated      = "ConditionRulesAggregated"

	reasonPrefix = "ConditionRule"
)

// TypeHealthy is the well-known condition that every kind has.
const TypeHealthy = "Healthy"

// maxMessage is the longest message of a condition that the API server accepts.
const maxMessage = 32768

// maxRules bounds the rules of one manifest, and the conditions that they set on a
// work: the hub refuses a status with too many conditions.
const maxRules = 32

var tooManyMessage = fmt.Sprintf("only the first %d rules of a manifest are evaluated", maxRules)

// maxType and conditionType are the bounds of metav1.Condition's type.
const maxType = 316

var conditionType = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)

// Set is the compiled rules of one manifest. Nil has no rules.
type Set struct {
	compiler *Compiler
	rules    []workv1.ConditionRule
	// firstSkipped is the type of the first rule that is not evaluated; empty if there is none.
	firstSkipped string
	// budget of one evaluation, in CEL's units of cost, and its time.
	budget int64
	time   time.Duration
}

// Compile prepares rules. It never fails: the condition of a rule reports what is wrong with
// it; only a rule whose condition has an invalid type is left out. The rules are not copied.
func (c *Compiler) Compile(rules []workv1.ConditionRule) *Set {
	if slices.ContainsFunc(rules, hasInvalidType) {
		rules = slices.DeleteFunc(slices.Clone(rules), hasInvalidType)
	}
	if len(rules) == 0 {
		return nil
	}
	s := &Set{compiler: c, rules: rules, budget: celconfig.RuntimeCELCostBudget, time: maxTime}
	if len(rules) > maxRules {
		s.rules = rules[:maxRules:maxRules]
		for _, r := range rules[maxRules:] {
			if isHealthyRule(r) {
				s.rules = append(s.rules, r) // the agent appends it
			} else if s.firstSkipped == "" {
				s.firstSkipped = r.Condition
			}
		}
	}
	return s
}

// hasInvalidType reports whether the condition of a rule would make the whole status invalid.
func hasInvalidType(r workv1.ConditionRule) bool {
	return len(r.Condition) > maxType || !conditionType.MatchString(r.Condition)
}

func isHealthyRule(r workv1.ConditionRule) bool {
	return r.Condition == TypeHealthy && r.Type == workv1.WellKnownConditionsType
}

// IsEmpty reports whether there are no rules.
func (s *Set) IsEmpty() bool { return s == nil }

// Eval returns one condition per rule, in their order, and one for the first rule beyond
// maxRules; a well-known rule that the object's kind does not have returns none. generation
// is that of the work. The conditions have no time.
func (s *Set) Eval(obj *unstructured.Unstructured, generation int64) []metav1.Condition {
	if s.IsEmpty() {
		return nil
	}
	run := &evaluation{compiler: s.compiler, object: obj.Object, budget: s.budget, time: s.time}
	out := make([]metav1.Condition, 0, len(s.rules)+1)
	for i := range s.rules {
		if c, ok := run.evalRule(&s.rules[i], obj); ok {
			c.Type = s.rules[i].Condition
			c.ObservedGeneration = generation
			c.Message = truncateMessage(c.Message)
			out = append(out, c)
		}
	}
	if s.firstSkipped != "" {
		out = append(out, tooManyRules(s.firstSkipped, generation))
	}
	return out
}

// tooManyRules returns the condition of a rule beyond maxRules.
func tooManyRules(kind string, generation int64) metav1.Condition {
	return metav1.Condition{
		Type: kind, Status: metav1.ConditionUnknown, Reason: ReasonInvalid, Message: tooManyMessage, ObservedGeneration: generation,
	}
}

// evaluation evaluates the rules of one manifest, which share a budget of cost and of
// time.
type evaluation struct {
	compiler *Compiler
	object   map[string]any
	budget   int64
	time     time.Duration
	// measured tells that the object's size is known, large that it is too much.
	measured, tooLarge bool
}

func (r *evaluation) evalRule(rule *workv1.ConditionRule, obj *unstructured.Unstructured) (metav1.Condition, bool) {
	switch rule.Type {
	case workv1.CelConditionExpressionsType:
		return r.evalCEL(rule), true
	case workv1.WellKnownConditionsType:
		return r.evalWellKnown(rule, obj)
	default:
		return metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: ReasonInvalid,
			Message: fmt.Sprintf("unrecognized condition rule type %s", rule.Type),
		}, true
	}
}

func (r *evaluation) evalCEL(rule *workv1.ConditionRule) metav1.Condition {
	// An invalid expression is reported whatever the object is like.
	for _, expression := range rule.CelExpressions {
		if _, err := r.compiler.program(expression); err != nil {
			return errorCondition(err)
		}
	}
	result := true
	for _, expression := range rule.CelExpressions {
		holds, err := r.evalBool(expression)
		if err != nil {
			return errorCondition(err)
		}
		// As with &&, later expressions may rely on earlier ones.
		if !holds {
			result = false
			break
		}
	}
	return r.newCondition(rule, result, "")
}

// newCondition returns the condition of a result. Of the messages the last that is not empty
// counts: the agent's, the rule's default, its message, its message expression.
func (r *evaluation) newCondition(rule *workv1.ConditionRule, result bool, byDefault string) metav1.Condition {
	c := metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonEvaluated, Message: "Manifest is not " + rule.Condition}
	if result {
		c.Status, c.Message = metav1.ConditionTrue, "Manifest is "+rule.Condition
	}
	if byDefault != "" {
		c.Message = byDefault
	}
	if rule.Message != "" {
		c.Message = rule.Message
	}
	if rule.MessageExpression == "" {
		return c
	}
	message, err := r.evalString(rule.MessageExpression, result)
	if err != nil {
		return errorCondition(err)
	}
	if message != "" {
		c.Message = message
	}
	return c
}

func errorCondition(err error) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonExpressionError, Message: err.Error()}
}

// truncateMessage shortens a message at a rune boundary.
func truncateMessage(text string) string {
	if len(text) <= maxMessage {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:maxMessage-len("...")], "") + "..."
}
