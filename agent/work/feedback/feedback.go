// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feedback reads the values that a ManifestWork's feedback rules ask for
// out of an object, as Open Cluster Management's agent does.
//
// Rules are compiled once per spec and evaluated on every event of the object. A
// [Program] is immutable and may be used by several goroutines. A path is bounded
// in length, recursion and unions, so that no rule can cost more than a few walks
// over the object, and all of a manifest's together in what they visit and report.
package feedback

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	workv1 "open-cluster-management.io/api/work/v1"
)

// ConditionType of the condition that says how reading went.
const ConditionType = "StatusFeedbackSynced"

// DefaultMaxRawLength is what ManifestWork's CRD allows in jsonRaw.
const DefaultMaxRawLength = 1024

// maxValues bounds how many values one manifest reports, and how many errors.
const maxValues = 1024

// maxSize bounds the strings and the raw JSON of one manifest's values, in bytes
// of the JSON that they are sent as: a status has many manifests.
const maxSize = 256 << 10

var errTooMany = fmt.Errorf("more than %d values are asked for", maxValues)

// Options of an agent.
type Options struct {
	// RawJSON reports structures, lists and floats as compact JSON (the gate
	// RawFeedbackJsonString); without it they are errors.
	RawJSON bool
	// MaxRawLength of such JSON in bytes; zero is DefaultMaxRawLength.
	MaxRawLength int
}

// Program is a compiled list of rules. Its zero value has no rules.
type Program struct {
	rules   []compiled
	options Options
}

// compiled is one rule: its paths, or those that the object's kind has.
type compiled struct {
	wellKnown bool
	paths     []path
	err       error
}

// Compile prepares rules. It never fails: what is wrong with a path is reported by
// Eval, beside the values of the others.
func Compile(rules []workv1.FeedbackRule, o Options) *Program {
	if o.MaxRawLength <= 0 {
		o.MaxRawLength = DefaultMaxRawLength
	}
	p := &Program{options: o}
	left := maxValues
	for _, r := range rules {
		c := compiled{}
		switch r.Type {
		case workv1.WellKnownStatusType:
			c.wellKnown = true
		case workv1.JSONPathsType:
			if len(r.JsonPaths) > left {
				c.err = errTooMany
				break
			}
			left -= len(r.JsonPaths)
			for _, j := range r.JsonPaths {
				c.paths = append(c.paths, parse(j))
			}
		default:
			c.err = fmt.Errorf("feedback rule type %q is not known", r.Type)
		}
		p.rules = append(p.rules, c)
	}
	return p
}

// Empty tells that there are no rules.
func (p *Program) Empty() bool { return p == nil || len(p.rules) == 0 }

// Eval reads the values of obj in the order of the rules. The error is an
// aggregate in the same order; what could be read is returned beside it.
func (p *Program) Eval(obj *unstructured.Unstructured) ([]workv1.FeedbackValue, error) {
	if p.Empty() {
		return nil, nil
	}
	e := evaluation{program: p, steps: maxSteps, size: maxSize, seen: map[string]bool{}}
	gvk := obj.GroupVersionKind()
	for _, rule := range p.rules {
		paths, err := rule.resolve(gvk)
		if err != nil {
			e.failures = append(e.failures, err)
			continue
		}
		for _, at := range paths {
			if err := e.add(at, gvk.Version, obj); err != nil {
				e.failures = append(e.failures, err)
			}
		}
	}
	return e.values, utilerrors.NewAggregate(e.failures)
}

// evaluation is one evaluation of one manifest's rules; they share its budgets.
type evaluation struct {
	program  *Program
	steps    int // what paths may still visit
	size     int // of the values that may still be added
	seen     map[string]bool
	values   []workv1.FeedbackValue
	failures []error
}

// add reads the value at a path, if there is one.
func (e *evaluation) add(at path, version string, obj *unstructured.Unstructured) error {
	value, err := e.read(at, version, obj)
	if err != nil || value == nil {
		return err
	}
	if e.seen[at.name] {
		// The list of values is a map by name: a second one would make the
		// whole status invalid.
		return fmt.Errorf("value %s is asked for more than once", at.name)
	}
	size := encoded(value.String, e.size) + encoded(value.JsonRaw, e.size)
	if size > e.size {
		return fmt.Errorf("value of %s exceeds the limit of %d bytes for all values of a manifest", at.name, maxSize)
	}
	e.size -= size
	e.seen[at.name] = true
	e.values = append(e.values, workv1.FeedbackValue{Name: at.name, Value: *value})
	return nil
}

// read returns nil when there is no value at a path.
func (e *evaluation) read(at path, version string, obj *unstructured.Unstructured) (*workv1.FieldValue, error) {
	if at.version != "" && at.version != version {
		return nil, fmt.Errorf("version set in the path %s is not matched for the related resource", at.name)
	}
	found, err := at.find(obj.Object, &e.steps)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var value any = found
	if len(found) == 1 || !e.program.options.RawJSON {
		value = found[0]
	}
	field, err := e.program.field(value)
	if err != nil {
		return nil, fmt.Errorf("value of %s: %w", at.name, err)
	}
	return field, nil
}

// field maps a value to its type in the API; nil has none.
func (p *Program) field(value any) (*workv1.FieldValue, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case int64:
		return &workv1.FieldValue{Type: workv1.Integer, Integer: &v}, nil
	case string:
		return &workv1.FieldValue{Type: workv1.String, String: &v}, nil
	case bool:
		return &workv1.FieldValue{Type: workv1.Boolean, Boolean: &v}, nil
	}
	if !p.options.RawJSON {
		return nil, fmt.Errorf("type %s is not supported, only integer, string and boolean are", describe(value))
	}
	text, err := raw(value, p.options.MaxRawLength)
	if err != nil {
		return nil, err
	}
	return &workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &text}, nil
}

// Condition says how an Eval with this error went, in OCM's words. It bears no
// time and no generation.
func (p *Program) Condition(err error) metav1.Condition {
	c := metav1.Condition{Type: ConditionType, Status: metav1.ConditionTrue, Reason: "StatusFeedbackSynced"}
	switch {
	case p.Empty():
		c.Reason = "NoStatusFeedbackSynced"
	case err != nil:
		c.Status, c.Reason = metav1.ConditionFalse, "StatusFeedbackSyncFailed"
		c.Message = clip(fmt.Sprintf("Sync status feedback failed with error %v", err))
	}
	return c
}

// maxMessage is what the API server takes as a condition's message.
const maxMessage = 32768

func clip(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage - len("...")
	for cut > 0 && text[cut]&0xC0 == 0x80 { // inside a rune
		cut--
	}
	return text[:cut] + "..."
}

// describe names a type as JSON does.
func describe(value any) string {
	switch value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "list"
	case float64:
		return "float"
	default:
		return fmt.Sprintf("%T", value)
	}
}

var errTooLong = errors.New("raw JSON is too long")
