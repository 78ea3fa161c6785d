// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/third_party/forked/golang/template"
	"k8s.io/client-go/util/jsonpath"
)

// maxSteps bounds what all paths of a manifest visit together: the largest object
// that etcd takes has less than a million values.
const maxSteps = 8 << 20

var (
	errSteps   = fmt.Errorf("reading took more than %d steps", maxSteps)
	errCompare = errors.New("can only compare one element at a time")
)

// walk evaluates one template as client-go does, whose parser made it, with these
// differences: a string has no members, for client-go makes a value of every byte;
// the members of a map come in the order of their keys; no error quotes the object;
// and a template keeps no state.
type walk struct {
	nodes []jsonpath.Node
	// left is how many values may still be visited, by other walks too.
	left *int
	// begun, within and ended count ranges; last is the node that ended the latest.
	begun, within, ended, last int
	// found is what the first of the actions yields; none is looked at in a range of
	// nothing.
	found   []any
	done    bool
	nothing int
}

// from evaluates the nodes from the first on; every one is an action.
func (w *walk) from(first int, current []any) error {
	for i := first; i < len(w.nodes); i++ {
		results, err := w.node(current, w.nodes[i])
		if err != nil {
			return err
		}
		if w.ended > 0 && w.ended <= w.within {
			w.ended--
			w.last = i
			break
		}
		if w.begun == 0 {
			w.yield(results)
			continue
		}
		if err := w.loop(i+1, results); err != nil {
			return err
		}
		i = max(i, w.last)
	}
	return nil
}

func (w *walk) yield(results []any) {
	if !w.done && w.nothing == 0 {
		w.found, w.done = results, true
	}
}

// loop evaluates what follows a range for each of its values; for none as well, to
// find the end.
func (w *walk) loop(first int, values []any) error {
	w.begun--
	w.within++
	defer func() { w.within-- }()
	if len(values) == 0 {
		w.nothing++
		defer func() { w.nothing-- }()
		return w.from(first, []any{nil})
	}
	for _, v := range values {
		if err := w.from(first, []any{v}); err != nil {
			return err
		}
	}
	return nil
}

// step takes n values off the budget.
func (w *walk) step(n int) error {
	if *w.left -= n; *w.left < 0 {
		return errSteps
	}
	return nil
}

// node returns what a node makes of each of the input's values.
func (w *walk) node(input []any, n jsonpath.Node) ([]any, error) {
	if err := w.step(1 + len(input)); err != nil {
		return nil, err
	}
	switch n := n.(type) {
	case *jsonpath.ListNode:
		return w.list(input, n)
	case *jsonpath.TextNode:
		return []any{n.Text}, nil
	case *jsonpath.IntNode:
		return slices.Repeat([]any{n.Value}, len(input)), nil
	case *jsonpath.FloatNode:
		return slices.Repeat([]any{n.Value}, len(input)), nil
	case *jsonpath.BoolNode:
		return slices.Repeat([]any{n.Value}, len(input)), nil
	case *jsonpath.FieldNode:
		return fields(input, n.Value), nil
	case *jsonpath.WildcardNode:
		return w.members(input)
	case *jsonpath.ArrayNode:
		return elements(input, n.Params)
	case *jsonpath.FilterNode:
		return w.filter(input, n)
	case *jsonpath.UnionNode:
		return w.union(input, n)
	case *jsonpath.IdentifierNode:
		return w.identifier(input, n.Name)
	case *jsonpath.RecursiveNode:
		var out []any
		for _, value := range input {
			if err := w.descend(value, &out); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return nil, fmt.Errorf("unexpected node %s", jsonpath.NodeTypeName[n.Type()])
	}
}

func (w *walk) list(input []any, n *jsonpath.ListNode) ([]any, error) {
	var err error
	for _, node := range n.Nodes {
		if input, err = w.node(input, node); err != nil {
			return nil, err
		}
	}
	return input, nil
}

func (w *walk) union(input []any, n *jsonpath.UnionNode) ([]any, error) {
	var out []any
	for _, member := range n.Nodes {
		next, err := w.node(input, member)
		if err != nil {
			return nil, err
		}
		out = append(out, next...)
	}
	return out, nil
}

func (w *walk) identifier(input []any, name string) ([]any, error) {
	switch name {
	case "range":
		w.begun++
		return input, nil
	case "end":
		if w.within == 0 {
			return nil, errors.New("not in range, nothing to end")
		}
		w.ended++
		return nil, nil
	default:
		return nil, fmt.Errorf("unrecognized identifier %s", name)
	}
}

// fields are the values of a key, of those that have it.
func fields(input []any, key string) []any {
	var out []any
	for _, value := range input {
		m, _ := value.(map[string]any)
		if field, ok := m[key]; ok {
			out = append(out, field)
		}
	}
	return out
}

// members are the values in maps and lists.
func (w *walk) members(input []any) ([]any, error) {
	var out []any
	for _, value := range input {
		before := len(out)
		switch v := value.(type) {
		case []any:
			out = append(out, v...)
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				out = append(out, v[key])
			}
		}
		if err := w.step(len(out) - before); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// descend adds a value and all that are in it, but no scalars besides strings.
func (w *walk) descend(value any, out *[]any) error {
	if err := w.step(1); err != nil {
		return err
	}
	switch v := value.(type) {
	case string:
		if v != "" {
			*out = append(*out, v)
		}
	case []any:
		if len(v) > 0 {
			*out = append(*out, v)
		}
		for _, child := range v {
			if err := w.descend(child, out); err != nil {
				return err
			}
		}
	case map[string]any:
		if len(v) > 0 {
			*out = append(*out, v)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := w.descend(v[key], out); err != nil {
				return err
			}
		}
	}
	return nil
}

// elements are those of lists from start to end, by step.
func elements(input []any, params [3]jsonpath.ParamsEntry) ([]any, error) {
	var out []any
	for _, value := range input {
		if value == nil {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			return nil, fmt.Errorf("%T is not array or slice", value)
		}
		start, end, err := bound(params, len(list))
		if err != nil {
			return nil, err
		}
		if start == end { // client-go looks no further
			return out, nil
		}
		by := 1
		if params[2].Known {
			by = params[2].Value
		}
		if by <= 0 {
			return nil, errors.New("step must be > 0")
		}
		for i := start; i < end; {
			out = append(out, list[i])
			if by > end-i {
				break
			}
			i += by
		}
	}
	return out, nil
}

// bound maps an array node's start and end to a list of some length.
func bound(params [3]jsonpath.ParamsEntry, length int) (start, end int, err error) {
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
	if end < 0 || end == 0 && params[1].Derived {
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

// filter are the elements of lists that pass.
func (w *walk) filter(input []any, n *jsonpath.FilterNode) ([]any, error) {
	var out []any
	for _, value := range input {
		list, ok := value.([]any)
		if !ok {
			return nil, fmt.Errorf("%T is not array or slice and cannot be filtered", value)
		}
		for _, element := range list {
			passes, err := w.passes(element, n)
			if err != nil {
				return nil, err
			}
			if passes {
				out = append(out, element)
			}
		}
	}
	return out, nil
}

func (w *walk) passes(element any, n *jsonpath.FilterNode) (bool, error) {
	lefts, err := w.node([]any{element}, n.Left)
	if n.Operator == "exists" && !errors.Is(err, errSteps) {
		return len(lefts) > 0, nil
	}
	if err != nil || len(lefts) == 0 {
		return false, err
	}
	if len(lefts) > 1 {
		return false, errCompare
	}
	rights, err := w.node([]any{element}, n.Right)
	if err != nil || len(rights) == 0 {
		return false, err
	}
	if len(rights) > 1 {
		return false, errCompare
	}
	return compare(n.Operator, lefts[0], rights[0])
}

func compare(operator string, left, right any) (bool, error) {
	switch operator {
	case "<":
		return template.Less(left, right)
	case ">":
		return template.Greater(left, right)
	case "==":
		return template.Equal(left, right)
	case "!=":
		return template.NotEqual(left, right)
	case "<=":
		return template.LessEqual(left, right)
	case ">=":
		return template.GreaterEqual(left, right)
	default:
		return false, fmt.Errorf("unrecognized filter operator %s", operator)
	}
}
