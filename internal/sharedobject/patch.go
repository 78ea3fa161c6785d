// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedobject

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/json"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Target is what a patch is for.
type Target struct {
	// ResourceVersion that the object must have: an API server answers 409 if it has
	// another.
	ResourceVersion string
	// Annotated: the object has annotations, be they shared or not.
	Annotated bool
	// Subresource: the status is a subresource of the object.
	Subresource bool
}

// Patch is the JSON patch that makes an object with the content from one with the content
// to, in all but its status where that is a subresource; nil when there is nothing to do.
func (t Target) Patch(from, to Content) ([]byte, error) {
	ops := append(stringOps(keyLabels, from, to, false), stringOps(keyAnnotations, from, to, t.Annotated)...)
	for _, key := range keysOf(from, to) {
		if key == keyMetadata || key == keyStatus && t.Subresource {
			continue
		}
		ops = appendField(ops, key, from, to)
	}
	return t.encode(ops)
}

// StatusPatch is the JSON patch of the status alone, for the subresource.
func (t Target) StatusPatch(from, to Content) ([]byte, error) {
	return t.encode(appendField(nil, keyStatus, from, to))
}

func (t Target) encode(ops []operation) ([]byte, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	version := operation{Op: "replace", Path: "/metadata/resourceVersion", Value: t.ResourceVersion}
	raw, err := json.Marshal(append([]operation{version}, ops...))
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// appendField replaces a field of an object as a whole.
func appendField(ops []operation, key string, from, to Content) []operation {
	before, had := from[key]
	after, has := to[key]
	switch {
	case has && (!had || !equality.Semantic.DeepEqual(before, after)):
		return append(ops, operation{Op: "add", Path: path(key), Value: jsonValue{after}})
	case had && !has:
		return append(ops, operation{Op: "remove", Path: path(key)})
	default:
		return ops
	}
}

// jsonValue is written also where it is null.
type jsonValue struct{ value any }

// MarshalJSON is that of the value.
func (v jsonValue) MarshalJSON() ([]byte, error) { return json.Marshal(v.value) }

// stringOps changes labels or annotations key by key: there may be others that are not
// shared, for which the map is there already.
func stringOps(kind string, from, to Content, exists bool) (ops []operation) {
	before, after := stringsOf(from, kind), stringsOf(to, kind)
	if len(before) == 0 && len(after) > 0 && !exists {
		return []operation{{Op: "add", Path: path(keyMetadata, kind), Value: after}}
	}
	for _, key := range keysOf(before, after) {
		value, has := after[key]
		old, had := before[key]
		switch {
		case has && (!had || old != value):
			ops = append(ops, operation{Op: "add", Path: path(keyMetadata, kind, key), Value: value})
		case had && !has:
			ops = append(ops, operation{Op: "remove", Path: path(keyMetadata, kind, key)})
		}
	}
	return ops
}

func stringsOf(c Content, kind string) map[string]any {
	meta, _ := c[keyMetadata].(map[string]any)
	values, _ := meta[kind].(map[string]any)
	return values
}

// keysOf are those of both maps, sorted: a patch is the same each time.
func keysOf[M ~map[string]any](a, b M) []string {
	all := maps.Clone(a)
	if all == nil {
		all = M{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// path is a JSON pointer (RFC 6901).
func path(keys ...string) string {
	var b strings.Builder
	for _, key := range keys {
		b.WriteByte('/')
		b.WriteString(escape.Replace(key))
	}
	return b.String()
}
