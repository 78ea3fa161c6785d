// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"math"
	"reflect"
	"slices"
	"strconv"
)

// sides is one thing on both sides.
type sides[T any] struct{ hub, spoke T }

// of returns the thing on one side.
func (b sides[T]) of(side Side) T {
	if side == Hub {
		return b.hub
	}
	return b.spoke
}

// absent stands in place of the value that a map or list does not have.
type absent struct{}

// unknown stands in place of a base of which nothing is known. It is the same as
// no value, not even itself, so that every value counts as changed.
type unknown struct{}

// lookup returns the value that a map, which may be absent or unknown itself, has
// under a key.
func lookup(m any, key string) any {
	switch m := m.(type) {
	case unknown:
		return m
	case map[string]any:
		if value, ok := m[key]; ok {
			return value
		}
	}
	return absent{}
}

// isEqual reports whether two values are equal. Numbers go by their value.
func isEqual(a, b any) bool {
	switch a := a.(type) {
	case unknown:
		return false
	case map[string]any:
		other, ok := b.(map[string]any)
		return ok && areMapsEqual(a, other)
	case []any:
		other, ok := b.([]any)
		return ok && slices.EqualFunc(a, other, isEqual)
	case int64, float64:
		return areNumbersEqual(a, b)
	case nil, bool, string, absent:
		return a == b
	default:
		return reflect.DeepEqual(a, b)
	}
}

func areMapsEqual(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, ok := b[key]; !ok || !isEqual(value, other) {
			return false
		}
	}
	return true
}

func areNumbersEqual(a, b any) bool {
	i, exact := integer(a)
	j, also := integer(b)
	if exact && also {
		return i == j
	}
	return a == b
}

// integer returns the number that an int64 or a float64 is exactly.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		// The greatest int64 is no float64: as one it would be one more.
		if v != math.Trunc(v) || v < math.MinInt64 || v >= math.MaxInt64 {
			return 0, false
		}
		return int64(v), true
	default:
		return 0, false
	}
}

// scalarKey is a text that equal scalars, and only they, have in common. Null
// and what is no scalar has none.
func scalarKey(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v), true
	case bool:
		return strconv.FormatBool(v), true
	case int64, float64:
		if i, ok := integer(v); ok {
			return strconv.FormatInt(i, 10), true
		}
		f, ok := v.(float64)
		return strconv.FormatFloat(f, 'g', -1, 64), ok
	default:
		return "", false
	}
}

// validateContents returns [ErrNotJSON] unless the contents are such as JSON is decoded to.
func validateContents(contents ...map[string]any) error {
	for _, content := range contents {
		if !isJSON(content) {
			return ErrNotJSON
		}
	}
	return nil
}

func isJSON(v any) bool {
	switch v := v.(type) {
	case nil, bool, string, int64, float64:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !isJSON(item) })
	case map[string]any:
		for _, value := range v {
			if !isJSON(value) {
				return false
			}
		}
		return true
	default:
		return false
	}
}
