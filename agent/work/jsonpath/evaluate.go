// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonpath

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/util/jsonpath"
)

// MaxSteps is the budget of paths that are evaluated for one purpose: the largest object
// that etcd stores has less than a million values.
const MaxSteps = 8 << 20

var (
	// ErrSteps is returned when the budget of steps is exhausted.
	ErrSteps   = fmt.Errorf("reading took more than %d steps", MaxSteps)
	errCompare = errors.New("can only compare one element at a time")
)

// Find returns the values that the path selects; none, and no error, where keys are
// missing. What it visits is subtracted from steps.
func (p Path) Find(object map[string]any, steps *int) ([]any, error) {
	e := evaluation{steps: steps}
	matches, err := e.applyAll(p.nodes, []match{{value: object}})
	if err != nil {
		return nil, err
	}
	values := make([]any, len(matches))
	for i, m := range matches {
		values[i] = m.value
	}
	return values, nil
}

// Remove removes the values that the path selects from an object, in place. What a path
// does not fit, such as an index beyond a list, selects nothing; the only error is ErrSteps.
func (p Path) Remove(object map[string]any, steps *int) error {
	e := evaluation{steps: steps, lenient: true}
	matches, err := e.applyAll(p.nodes, []match{{value: object}})
	if err != nil {
		return err
	}
	for _, m := range matches {
		switch parent := m.parent.(type) {
		case map[string]any:
			delete(parent, m.key)
		case []any:
			parent[m.index] = removed{} // indices must not move before all are removed
		}
	}
	compact(object)
	return nil
}

// removed replaces a removed element until its list is compacted.
type removed struct{}

// compact removes the removed elements from the lists in a value.
func compact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			v[key] = compact(child)
		}
	case []any:
		v = slices.DeleteFunc(v, func(child any) bool { return child == removed{} })
		for i, child := range v {
			v[i] = compact(child)
		}
		return v
	}
	return v
}

// match is a value, and where it is: under a key of a map or at an index of a list. A
// constant and the object itself have no parent.
type match struct {
	value  any
	parent any
	key    string
	index  int
}

// evaluation evaluates one path.
type evaluation struct {
	steps *int
	// lenient skips values that a node does not fit, where kubectl fails.
	lenient bool
}

func (e *evaluation) spend(steps int) error {
	if *e.steps -= steps; *e.steps < 0 {
		return ErrSteps
	}
	return nil
}

// skip returns the error that kubectl has for a value which a node does not fit.
func (e *evaluation) skip(err error) error {
	if e.lenient && !errors.Is(err, ErrSteps) {
		return nil
	}
	return err
}

func (e *evaluation) applyAll(nodes []jsonpath.Node, input []match) ([]match, error) {
	var err error
	for _, n := range nodes {
		if input, err = e.apply(n, input); err != nil {
			return nil, err
		}
	}
	return input, nil
}

// apply returns what a node selects of each of the input's values.
func (e *evaluation) apply(n jsonpath.Node, input []match) ([]match, error) {
	if err := e.spend(1 + len(input)); err != nil {
		return nil, err
	}
	switch n := n.(type) {
	case *jsonpath.ListNode:
		return e.applyAll(n.Nodes, input)
	case *jsonpath.TextNode:
		return []match{{value: n.Text}}, nil
	case *jsonpath.IntNode:
		return slices.Repeat([]match{{value: n.Value}}, len(input)), nil
	case *jsonpath.FloatNode:
		return slices.Repeat([]match{{value: n.Value}}, len(input)), nil
	case *jsonpath.BoolNode:
		return slices.Repeat([]match{{value: n.Value}}, len(input)), nil
	case *jsonpath.UnionNode:
		return e.applyUnion(n, input)
	}
	var out []match
	for _, m := range input {
		if err := e.selectFrom(m, n, &out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *evaluation) applyUnion(n *jsonpath.UnionNode, input []match) ([]match, error) {
	var out []match
	for _, member := range n.Nodes {
		selected, err := e.applyAll(member.Nodes, input)
		if err != nil {
			return nil, err
		}
		out = append(out, selected...)
	}
	return out, nil
}

// selectFrom appends what a node selects of one value.
func (e *evaluation) selectFrom(m match, n jsonpath.Node, out *[]match) error {
	switch n := n.(type) {
	case *jsonpath.FieldNode:
		selectField(m.value, n.Value, out)
	case tokenNode:
		if list, ok := m.value.([]any); ok {
			if i, ok := n.index(len(list)); ok {
				*out = append(*out, match{value: list[i], parent: list, index: i})
			}
		}
		selectField(m.value, string(n), out)
	case *jsonpath.WildcardNode:
		children := childrenOf(m.value)
		*out = append(*out, children...)
		return e.spend(len(children))
	case *jsonpath.RecursiveNode:
		return e.descend(m, out)
	case *jsonpath.ArrayNode:
		return e.skip(selectElements(m.value, n.Params, out))
	case *jsonpath.FilterNode:
		return e.filter(m.value, n, out)
	default:
		return fmt.Errorf("unexpected node %s", jsonpath.NodeTypeName[n.Type()])
	}
	return nil
}

func selectField(value any, key string, out *[]match) {
	m, _ := value.(map[string]any)
	if field, ok := m[key]; ok {
		*out = append(*out, match{value: field, parent: m, key: key})
	}
}

// childrenOf returns the values in a map, in the order of their keys, or in a list.
func childrenOf(value any) []match {
	var children []match
	switch v := value.(type) {
	case []any:
		for i, child := range v {
			children = append(children, match{value: child, parent: v, index: i})
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			children = append(children, match{value: v[key], parent: v, key: key})
		}
	}
	return children
}

// descend appends a value and all values in it, but as kubectl no scalars besides strings,
// and nothing that is empty.
func (e *evaluation) descend(m match, out *[]match) error {
	if err := e.spend(1); err != nil {
		return err
	}
	children := childrenOf(m.value)
	if text, _ := m.value.(string); text != "" || len(children) > 0 {
		*out = append(*out, m)
	}
	for _, child := range children {
		if err := e.descend(child, out); err != nil {
			return err
		}
	}
	return nil
}

// selectElements appends the elements of a list from start to end, by step.
func selectElements(value any, params [3]jsonpath.ParamsEntry, out *[]match) error {
	if value == nil {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%T is not array or slice", value)
	}
	start, end, err := sliceBounds(params, len(list))
	if err != nil || start == end {
		return err
	}
	step := 1
	if params[2].Known {
		step = params[2].Value
	}
	if step <= 0 {
		return errors.New("step must be > 0")
	}
	for i := start; i < end; i += min(step, end-i) { // which cannot overflow
		*out = append(*out, match{value: list[i], parent: list, index: i})
	}
	return nil
}

// sliceBounds returns the start and the end of an array node in a list of some length.
func sliceBounds(params [3]jsonpath.ParamsEntry, length int) (start, end int, err error) {
	end = length
	if params[0].Known {
		start = params[0].Value
	}
	if start < 0 {
		start += length
	}
	if params[1].Known {
		end = params[1].Value
	}
	if end < 0 || end == 0 && params[1].Derived { // [-1] has the derived end 0: that of the list
		end += length
	}
	switch {
	case start == end:
		return start, end, nil
	case start >= length || start < 0:
		return 0, 0, fmt.Errorf("array index out of bounds: index %d, length %d", start, length)
	case end > length || end < 0:
		return 0, 0, fmt.Errorf("array index out of bounds: index %d, length %d", end-1, length)
	case start > end:
		return 0, 0, fmt.Errorf("starting index %d is greater than ending index %d", start, end)
	}
	return start, end, nil
}
