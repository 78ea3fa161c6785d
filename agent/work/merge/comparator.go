// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// equal reports whether two values are the same: null and empty values equal missing ones,
// and numbers are compared by value.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		return equalMaps(a, b)
	case []any:
		other, ok := b.([]any)
		return (ok || b == nil) && slices.EqualFunc(a, other, equal)
	default:
		return a == nil && isEmpty(b) || equalScalars(a, b)
	}
}

func equalMaps(a map[string]any, b any) bool {
	other, ok := b.(map[string]any)
	if !ok && b != nil {
		return false
	}
	for key, value := range a {
		if !equal(value, other[key]) {
			return false
		}
	}
	for key, value := range other {
		if _, seen := a[key]; !seen && !isEmpty(value) {
			return false
		}
	}
	return true
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}

func equalScalars(a, b any) bool {
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	switch a.(type) {
	case string, bool, nil:
		return a == b
	}
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return i == j
		}
	}
	f, ok := float(a)
	g, also := float(b)
	if ok && also {
		return f == g
	}
	x, ok := a.(json.Number)
	y, also := b.(json.Number)
	return ok && also && x == y // beyond what a float holds
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case json.Number:
		i, err := v.Int64()
		return i, err == nil
	default:
		return 0, false
	}
}

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	default:
		i, ok := integer(v)
		return float64(i), ok
	}
}

// A lens compares the content of one kind as its API server stores it.
type comparator struct {
	group string
	// builtin is set if the API server drops empty values.
	builtin bool
}

func newComparator(group string) comparator {
	return comparator{group: group, builtin: slices.Contains(builtinGroups, group)}
}

// includes reports whether live has everything that is wanted. The key is that of
// the field or of the list of the values.
func (l comparator) includes(have, want any, key string) bool {
	switch want := want.(type) {
	case nil:
		return true // to the API server null is a missing field
	case map[string]any:
		return l.includesMap(have, want, key)
	case []any:
		return l.includesList(have, want, key)
	default:
		return l.includesScalar(have, want, key)
	}
}

func (l comparator) includesMap(have any, want map[string]any, key string) bool {
	live, ok := have.(map[string]any)
	if !ok {
		return have == nil && len(want) == 0 && l.builtin && slices.Contains(omittedWhenEmpty, key)
	}
	amounts := slices.Contains(quantityMaps, key)
	for field, value := range want {
		if amounts && equalQuantities(live[field], value) {
			continue
		}
		if !l.includes(live[field], value, field) {
			return false
		}
	}
	return true
}

func (l comparator) includesList(have any, want []any, key string) bool {
	live, ok := have.([]any)
	if !ok {
		return have == nil && len(want) == 0 && l.builtin
	}
	return slices.EqualFunc(live, want, func(h, w any) bool { return w == nil && h == nil || w != nil && l.includes(h, w, key) })
}

func (l comparator) includesScalar(have, want any, key string) bool {
	if equalScalars(want, have) {
		return true
	}
	if !l.builtin {
		return false
	}
	switch {
	case want == "":
		return have == nil
	case slices.Contains(omittedWhenZero, key) && (want == false || equalScalars(want, int64(0))):
		return have == nil
	case key == "nodePort" && equalScalars(want, int64(0)):
		return true // requests any port
	case slices.Contains(quantityFields, key) || key == "value" && l.group == "autoscaling":
		return equalQuantities(have, want)
	default:
		return false
	}
}

// equalQuantities reports whether two values are the same quantity.
func equalQuantities(a, b any) bool {
	x, ok := parseQuantity(a)
	y, also := parseQuantity(b)
	return ok && also && x.Cmp(y) == 0
}

// maxQuantityLength bounds a parsed quantity, in bytes.
const maxQuantityLength = 64

func parseQuantity(v any) (resource.Quantity, bool) {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case nil, bool, map[string]any, []any:
		return resource.Quantity{}, false
	default:
		encoded, err := json.Marshal(v)
		if err != nil {
			return resource.Quantity{}, false
		}
		text = string(encoded)
	}
	if len(text) > maxQuantityLength {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// builtinGroups are the groups whose objects an API server decodes into types: it
// drops empty fields with omitempty, and normalizes quantities.
var builtinGroups = []string{
	"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch",
	"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
	"networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io",
	"storage.k8s.io", "storagemigration.k8s.io",
}

var (
	// omittedWhenZero of built-in types are dropped when they are false or 0. Others,
	// being pointers, are kept: allowPrivilegeEscalation is not the same when it
	// is missing.
	omittedWhenZero = []string{
		"hostIPC", "hostNetwork", "hostPID", "hostPort", "initialDelaySeconds", "minReadySeconds", "paused",
		"publishNotReadyAddresses", "readOnly", "stdin", "stdinOnce", "tty",
	}
	// omittedWhenEmpty of built-in types are dropped when they are empty. An empty
	// selector is not the same as none.
	omittedWhenEmpty = []string{"annotations", "labels", "limits", "matchLabels", "nodeSelector", "parameters", "requests"}
	// quantityMaps have quantities under any key.
	quantityMaps = []string{
		"allocatedResources", "capacity", "default", "defaultRequest", "hard", "limits", "max", "maxLimitRequestRatio",
		"min", "podFixed", "requests",
	}
	// quantityFields are quantities themselves.
	quantityFields = []string{"averageValue", "divisor", "sizeLimit"}
)

// groupOf is the API group of an object.
func groupOf(object map[string]any) string {
	gv, err := schema.ParseGroupVersion(stringField(object, "apiVersion"))
	if err != nil {
		return ""
	}
	return gv.Group
}
