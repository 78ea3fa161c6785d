// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feedback reads the values that a ManifestWork's feedback rules ask for
// from an object, as Open Cluster Management's agent does.
//
// Rules are compiled once per spec and evaluated on every event of the object. A
// [Program] is immutable and may be used by several goroutines. The length of a path,
// the steps that all paths of a manifest take, and the number and size of their values
// are bounded.
package feedback

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/jsonpath"
)

// ConditionType is the type of the condition that reports errors of feedback rules.
const ConditionType = "StatusFeedbackSynced"

// DefaultMaxRawLength is what ManifestWork's CRD allows in jsonRaw.
const DefaultMaxRawLength = 1024

const (
	// maxValues bounds the values of one manifest, and its errors.
	maxValues = 1024
	// maxSize bounds the strings and the raw JSON of one manifest's values, in bytes
	// of the JSON that they are sent as: a status has many manifests.
	maxSize = 256 << 10
	// maxMessage is the longest message of a condition that the API server accepts.
	maxMessage = 32768
)

var errTooMany = fmt.Errorf("more than %d values are asked for", maxValues)

// Options configure an agent.
type Options struct {
	// RawJSON reports structures, lists and floats as compact JSON (the feature gate
	// RawFeedbackJsonString); without it they are errors.
	RawJSON bool
	// MaxRawLength of such JSON in bytes; zero is DefaultMaxRawLength.
	MaxRawLength int
}

// Program is a compiled list of rules. Its zero value has no rules.
type Program struct {
	rules   []compiledRule
	options Options
}

// compiledRule has the paths of one rule, unless the kind of the object decides them.
type compiledRule struct {
	wellKnown bool
	paths     []path
	err       error
}

// Compile compiles rules. It never fails: Eval reports what is wrong with a path,
// beside the values of the others.
func Compile(rules []workv1.FeedbackRule, o Options) *Program {
	if o.MaxRawLength <= 0 {
		o.MaxRawLength = DefaultMaxRawLength
	}
	p := &Program{options: o}
	left := maxValues
	for _, r := range rules {
		c := compiledRule{}
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
				c.paths = append(c.paths, parsePath(j))
			}
		default:
			c.err = fmt.Errorf("feedback rule type %q is not known", r.Type)
		}
		p.rules = append(p.rules, c)
	}
	return p
}

// IsEmpty reports whether there are no rules.
func (p *Program) IsEmpty() bool { return p == nil || len(p.rules) == 0 }

// Eval returns the values of obj in the order of the rules. The error is an aggregate in
// the same order; values that could be read are returned beside it.
func (p *Program) Eval(obj *unstructured.Unstructured) ([]workv1.FeedbackValue, error) {
	if p.IsEmpty() {
		return nil, nil
	}
	e := evaluation{options: p.options, steps: jsonpath.MaxSteps, size: maxSize, names: map[string]bool{}}
	gvk := obj.GroupVersionKind()
	var errs []error
	for _, rule := range p.rules {
		paths, err := rule.pathsOf(gvk)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, p := range paths {
			if err := e.addValue(p, gvk.Version, obj); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return e.values, utilerrors.NewAggregate(errs)
}

// pathsOf returns the paths of a rule for the kind of an object.
func (c compiledRule) pathsOf(gvk schema.GroupVersionKind) ([]path, error) {
	if c.err != nil || !c.wellKnown {
		return c.paths, c.err
	}
	paths, ok := wellKnown[gvk]
	if !ok {
		return nil, fmt.Errorf("cannot find the wellknown statuses for resource with gvk %s", gvk)
	}
	return paths, nil
}

// evaluation evaluates the rules of one manifest, which share its budgets.
type evaluation struct {
	options Options
	steps   int // that paths may still take
	size    int // of the values that may still be added
	names   map[string]bool
	values  []workv1.FeedbackValue
}

// addValue adds the value that a path selects, if there is one.
func (e *evaluation) addValue(p path, version string, obj *unstructured.Unstructured) error {
	value, err := e.readValue(p, version, obj)
	if err != nil || value == nil {
		return err
	}
	if e.names[p.name] {
		// The list of values is a map by name: a second one would make the
		// whole status invalid.
		return fmt.Errorf("value %s is asked for more than once", p.name)
	}
	size := stringSize(value.String, e.size) + stringSize(value.JsonRaw, e.size)
	if size > e.size {
		return fmt.Errorf("value of %s exceeds the limit of %d bytes for all values of a manifest", p.name, maxSize)
	}
	e.size -= size
	e.names[p.name] = true
	e.values = append(e.values, workv1.FeedbackValue{Name: p.name, Value: *value})
	return nil
}

// readValue returns nil when a path selects nothing.
func (e *evaluation) readValue(p path, version string, obj *unstructured.Unstructured) (*workv1.FieldValue, error) {
	if p.version != "" && p.version != version {
		return nil, fmt.Errorf("version set in the path %s is not matched for the related resource", p.name)
	}
	found, err := p.find(obj.Object, &e.steps)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var value any = found
	if len(found) == 1 || !e.options.RawJSON {
		value = found[0]
	}
	field, err := e.fieldValue(value)
	if err != nil {
		return nil, fmt.Errorf("value of %s: %w", p.name, err)
	}
	return field, nil
}

// fieldValue converts a value to its type in the API; nil has none.
func (e *evaluation) fieldValue(value any) (*workv1.FieldValue, error) {
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
	if !e.options.RawJSON {
		return nil, fmt.Errorf("type %s is not supported, only integer, string and boolean are", typeName(value))
	}
	text, err := encodeRaw(value, e.options.MaxRawLength)
	if err != nil {
		return nil, err
	}
	return &workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &text}, nil
}

// typeName names a type as JSON does.
func typeName(value any) string {
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

// Condition returns the condition for the error of an Eval, with OCM's reasons. It has no
// time and no generation.
func (p *Program) Condition(err error) metav1.Condition {
	c := metav1.Condition{Type: ConditionType, Status: metav1.ConditionTrue, Reason: "StatusFeedbackSynced"}
	switch {
	case p.IsEmpty():
		c.Reason = "NoStatusFeedbackSynced"
	case err != nil:
		c.Status, c.Reason = metav1.ConditionFalse, "StatusFeedbackSyncFailed"
		c.Message = fmt.Sprintf("Sync status feedback failed with error %v", err)
		if len(c.Message) > maxMessage {
			c.Message = strings.ToValidUTF8(c.Message[:maxMessage-len("...")], "") + "..."
		}
	}
	return c
}
