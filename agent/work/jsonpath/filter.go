// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonpath

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/client-go/third_party/forked/golang/template"
	"k8s.io/client-go/util/jsonpath"
)

// filter appends the elements of a list that a filter accepts.
func (e *evaluation) filter(value any, n *jsonpath.FilterNode, out *[]match) error {
	list, ok := value.([]any)
	if !ok {
		return e.skip(fmt.Errorf("%T is not array or slice and cannot be filtered", value))
	}
	for i, element := range list {
		accepted, err := e.accepts(n, element)
		if err := e.skip(err); err != nil {
			return err
		}
		if accepted {
			*out = append(*out, match{value: element, parent: list, index: i})
		}
	}
	return nil
}

func (e *evaluation) accepts(n *jsonpath.FilterNode, element any) (bool, error) {
	lefts, err := e.apply(n.Left, []match{{value: element}})
	if n.Operator == "exists" && !errors.Is(err, ErrSteps) {
		return len(lefts) > 0, nil
	}
	if err != nil || len(lefts) == 0 {
		return false, err
	}
	rights, err := e.apply(n.Right, []match{{value: element}})
	if err != nil || len(rights) == 0 {
		return false, err
	}
	if len(lefts) > 1 || len(rights) > 1 {
		return false, errCompare
	}
	accepted, err := compare(n.Operator, lefts[0].value, rights[0].value)
	if err != nil && e.lenient {
		return n.Operator == "!=", nil // values of different types differ
	}
	return accepted, err
}

func compare(operator string, left, right any) (bool, error) {
	left, right = commonType(left, right)
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

// commonType makes floats of two numbers of which one is not an integer.
func commonType(left, right any) (any, any) {
	left, right = number(left), number(right)
	switch l := left.(type) {
	case int64:
		if _, ok := right.(float64); ok {
			return float64(l), right
		}
	case float64:
		if r, ok := right.(int64); ok {
			return left, float64(r)
		}
	}
	return left, right
}

// number returns a number as an int64 if it is one, or as a float64, and other values as
// they are.
func number(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v.String()
	}
	return v
}
