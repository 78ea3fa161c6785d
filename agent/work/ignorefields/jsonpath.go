// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// Bounds of one path: each multiplies what is walked.
const (
	maxRecursions = 1
	maxBranches   = 16
)

var (
	errNoField    = errors.New("path names no field")
	errConstruct  = errors.New("path is more than fields, indices, filters, unions and wildcards")
	errRecursions = fmt.Errorf("more than %d recursive descent", maxRecursions)
	errBranches   = fmt.Errorf("unions have more than %d combinations", maxBranches)
)

// jsonPath is kubectl's JSONPath. client-go finds values by a path; to remove them
// their places are needed, so that the parsed path is followed here.
type jsonPath []jsonpath.Node

// parsePath accepts a path with braces or without.
func parsePath(text string) (jsonPath, error) {
	if len(text) > maxPath {
		return nil, errPathLength
	}
	if !strings.HasPrefix(text, "{") {
		text = "{" + text + "}"
	}
	tree, err := jsonpath.Parse("ignore", text)
	if err != nil {
		return nil, err
	}
	p := flatten(tree.Root.Nodes)
	if len(p) == 0 {
		return nil, errNoField
	}
	return p, (&bounds{}).check(p)
}

// flatten takes lists apart: they are only how the parser groups nodes.
func flatten(nodes []jsonpath.Node) jsonPath {
	var out jsonPath
	for _, n := range nodes {
		if list, ok := n.(*jsonpath.ListNode); ok {
			out = append(out, flatten(list.Nodes)...)
			continue
		}
		// "." is a field without a name: the node itself.
		if field, ok := n.(*jsonpath.FieldNode); ok && field.Value == "" {
			continue
		}
		out = append(out, n)
	}
	return out
}

// bounds counts what makes a path expensive.
type bounds struct{ recursions, branches int }

func (b *bounds) check(p jsonPath) error {
	for _, n := range p {
		switch n := n.(type) {
		case *jsonpath.FieldNode, *jsonpath.ArrayNode, *jsonpath.WildcardNode:
		case *jsonpath.RecursiveNode:
			b.recursions++
		case *jsonpath.UnionNode:
			b.branches = max(b.branches, 1) * len(n.Nodes)
			if b.branches > maxBranches {
				return errBranches
			}
			for _, member := range n.Nodes {
				if err := b.check(flatten(member.Nodes)); err != nil {
					return err
				}
			}
		case *jsonpath.FilterNode:
			if err := b.operands(n); err != nil {
				return err
			}
		default:
			return errConstruct
		}
		if b.recursions > maxRecursions {
			return errRecursions
		}
	}
	return nil
}

// operands of a filter are paths without filters, or one constant.
func (b *bounds) operands(f *jsonpath.FilterNode) error {
	for _, side := range []*jsonpath.ListNode{f.Left, f.Right} {
		for _, n := range flatten(side.Nodes) {
			switch n.(type) {
			case *jsonpath.FieldNode, *jsonpath.ArrayNode, *jsonpath.TextNode, *jsonpath.IntNode, *jsonpath.FloatNode, *jsonpath.BoolNode:
			default:
				return errConstruct
			}
		}
	}
	return nil
}

func (p jsonPath) remove(_ context.Context, doc map[string]any) (map[string]any, error) {
	p.follow(doc)
	sweep(doc)
	return doc, nil
}

// follow removes what p names below v; it tells whether that is v itself.
func (p jsonPath) follow(v any) (self bool) {
	if len(p) == 0 {
		return true
	}
	rest := p[1:]
	switch n := p[0].(type) {
	case *jsonpath.FieldNode:
		if m, ok := v.(map[string]any); ok {
			if child, has := m[n.Value]; has && rest.follow(child) {
				delete(m, n.Value)
			}
		}
	case *jsonpath.WildcardNode:
		each(v, rest.follow)
	case *jsonpath.RecursiveNode:
		// Deepest first: what is removed need not be searched, but a parent
		// must not vanish before its children were seen.
		each(v, func(child any) bool { return p.follow(child) })
		return rest.follow(v)
	case *jsonpath.UnionNode:
		for _, member := range n.Nodes {
			if append(flatten(member.Nodes), rest...).follow(v) {
				self = true
			}
		}
	case *jsonpath.ArrayNode:
		if list, ok := v.([]any); ok {
			for _, i := range positions(n.Params, len(list)) {
				if rest.follow(list[i]) {
					list[i] = gone{}
				}
			}
		}
	case *jsonpath.FilterNode:
		if list, ok := v.([]any); ok {
			for i, child := range list {
				if passes(n, child) && rest.follow(child) {
					list[i] = gone{}
				}
			}
		}
	}
	return self
}

// positions lists the indices of an index or a slice [start:end:step]; none when
// it is out of bounds.
func positions(params [3]jsonpath.ParamsEntry, length int) []int {
	start, end, step := 0, length, 1
	if params[0].Known {
		start = params[0].Value
	}
	if start < 0 {
		start += length
	}
	if params[1].Known {
		end = params[1].Value
	}
	// [-1] has the derived end 0: the end of the list.
	if end < 0 || end == 0 && params[1].Derived {
		end += length
	}
	if params[2].Known {
		step = params[2].Value
	}
	if start < 0 || end > length || step <= 0 {
		return nil
	}
	var out []int
	for i := start; i < end; i += step {
		out = append(out, i)
	}
	return out
}

// passes tells whether an element of a list is one that a filter means.
func passes(f *jsonpath.FilterNode, v any) bool {
	left, has := operand(flatten(f.Left.Nodes), v)
	if f.Operator == "exists" || !has {
		return has
	}
	right, has := operand(flatten(f.Right.Nodes), v)
	if !has {
		return false
	}
	order, ordered := compare(left, right)
	switch f.Operator {
	case "==":
		return left == right || ordered && order == 0
	case "!=":
		return left != right && (!ordered || order != 0)
	case "<":
		return ordered && order < 0
	case "<=":
		return ordered && order <= 0
	case ">":
		return ordered && order > 0
	case ">=":
		return ordered && order >= 0
	}
	return false
}

// operand is one scalar: a constant, or what a path finds in v.
func operand(p jsonPath, v any) (any, bool) {
	for _, n := range p {
		switch n := n.(type) {
		case *jsonpath.TextNode:
			v = n.Text
		case *jsonpath.IntNode:
			v = float64(n.Value)
		case *jsonpath.FloatNode:
			v = n.Value
		case *jsonpath.BoolNode:
			v = n.Value
		case *jsonpath.FieldNode:
			m, _ := v.(map[string]any)
			child, has := m[n.Value]
			if !has {
				return nil, false
			}
			v = child
		case *jsonpath.ArrayNode:
			list, _ := v.([]any)
			at := positions(n.Params, len(list))
			if len(at) != 1 {
				return nil, false
			}
			v = list[at[0]]
		}
	}
	return scalar(v), true
}

// scalar makes a value comparable: numbers of every form are one type, what is no
// scalar equals nothing.
func scalar(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case map[string]any, []any:
		return new(struct{ _ byte })
	}
	return v
}

// compare orders two strings or two numbers.
func compare(a, b any) (order int, ok bool) {
	if x, isText := a.(string); isText {
		y, both := b.(string)
		return strings.Compare(x, y), both
	}
	x, isNumber := a.(float64)
	y, both := b.(float64)
	switch {
	case !isNumber || !both:
		return 0, false
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, x == y
}
