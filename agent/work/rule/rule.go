// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rule evaluates a ManifestWork's condition rules on an object, as Open
// Cluster Management's agent does, and aggregates the results for the work.
//
//   - A [Compiler] holds what CEL needs: one environment, made when the first
//     expression is evaluated, and a bounded number of programs, shared by all
//     rules with the same expression. An agent without CEL rules pays nothing.
//   - A [Set] is the rules of one manifest. It is evaluated on every event of the
//     object.
//   - Besides OCM's rules there is the well-known rule Healthy, for every kind,
//     from kstatus.
//
// Expressions are bounded in length, in cost per call and in cost per manifest
// with the limits of the Kubernetes API server.
package rule

import (
	"fmt"
	"strings"

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

// maxMessage is what the API server takes as a condition's message.
const maxMessage = 32768

// Set is the compiled rules of one manifest. Nil has no rules.
type Set struct {
	compiler *Compiler
	rules    []workv1.ConditionRule
	// budget of one evaluation, in CEL's units of cost.
	budget int64
}

// Compile prepares rules. It never fails: what is wrong with a rule is said by the
// condition that it sets. The rules are kept, not copied.
func (c *Compiler) Compile(rules []workv1.ConditionRule) *Set {
	if len(rules) == 0 {
		return nil
	}
	return &Set{compiler: c, rules: rules, budget: celconfig.RuntimeCELCostBudget}
}

// Empty tells that there are no rules.
func (s *Set) Empty() bool { return s == nil }

// Eval returns one condition per rule, in their order; a well-known rule that the
// object's kind does not have gives none. generation is the work's. The conditions
// bear no time.
func (s *Set) Eval(obj *unstructured.Unstructured, generation int64) []metav1.Condition {
	if s.Empty() {
		return nil
	}
	run := &run{compiler: s.compiler, object: obj.Object, budget: s.budget}
	out := make([]metav1.Condition, 0, len(s.rules))
	for i := range s.rules {
		if c, ok := run.rule(&s.rules[i], obj); ok {
			c.Type = s.rules[i].Condition
			c.ObservedGeneration = generation
			c.Message = clip(c.Message)
			out = append(out, c)
		}
	}
	return out
}

// run is one evaluation of one manifest's rules; they share a budget.
type run struct {
	compiler *Compiler
	object   map[string]any
	budget   int64
}

func (r *run) rule(rule *workv1.ConditionRule, obj *unstructured.Unstructured) (metav1.Condition, bool) {
	switch rule.Type {
	case workv1.CelConditionExpressionsType:
		return r.cel(rule), true
	case workv1.WellKnownConditionsType:
		return r.wellKnown(rule, obj)
	default:
		return metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: ReasonInvalid,
			Message: fmt.Sprintf("unrecognized condition rule type %s", rule.Type),
		}, true
	}
}

func (r *run) cel(rule *workv1.ConditionRule) metav1.Condition {
	// A mistake in any of them is said whatever the object is like.
	for _, expression := range rule.CelExpressions {
		if _, err := r.compiler.program(expression); err != nil {
			return failed(err)
		}
	}
	result := true
	for _, expression := range rule.CelExpressions {
		holds, err := r.boolean(expression)
		if err != nil {
			return failed(err)
		}
		// As && does: what follows may rely on what came before.
		if !holds {
			result = false
			break
		}
	}
	return r.evaluated(rule, result, "")
}

// evaluated makes the condition of a result. Of the messages the last that is not
// empty counts: our own, the rule's default, its message, its message expression.
func (r *run) evaluated(rule *workv1.ConditionRule, result bool, byDefault string) metav1.Condition {
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
	message, err := r.text(rule.MessageExpression, result)
	if err != nil {
		return failed(err)
	}
	if message != "" {
		c.Message = message
	}
	return c
}

func failed(err error) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonExpressionError, Message: err.Error()}
}

// clip bounds a message, whole runes only.
func clip(text string) string {
	if len(text) <= maxMessage {
		return strings.ToValidUTF8(text, "?")
	}
	return strings.ToValidUTF8(text[:maxMessage-len("...")], "") + "..."
}
