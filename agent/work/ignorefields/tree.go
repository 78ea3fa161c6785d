// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

// gone stands where an element of a list was removed, until the list is closed
// up: indices must not move while a path is being followed.
type gone struct{}

func cloneMap(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for key, child := range m {
		out[key] = clone(child)
	}
	return out
}

// clone copies containers; scalars are immutable.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return cloneMap(v)
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = clone(child)
		}
		return out
	default:
		return v
	}
}

// sweep closes up the lists of a document.
func sweep(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			v[key] = sweep(child)
		}
		return v
	case []any:
		kept := v[:0]
		for _, child := range v {
			if _, removed := child.(gone); !removed {
				kept = append(kept, sweep(child))
			}
		}
		return kept
	default:
		return v
	}
}

// each visits the children of a container; visit tells whether to remove one.
func each(v any, visit func(child any) (remove bool)) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if visit(child) {
				delete(v, key)
			}
		}
	case []any:
		for i, child := range v {
			if visit(child) {
				v[i] = gone{}
			}
		}
	}
}
