// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// A shape says what values a field of testdata/schema.yaml has, for making them
// and for an opinion on what was merged that shares no code with the package.
type shape struct {
	kind   string            // "scalar", "whole", "map", "keyed" or "set"
	fields map[string]*shape // of a map, and of the items of a keyed list
}

var (
	scalarShape = &shape{kind: "scalar"}
	wholeShape  = &shape{kind: "whole"}
	setShape    = &shape{kind: "set"}
	deepShape   = &shape{kind: "map", fields: map[string]*shape{"a": scalarShape, "l": wholeShape, "x1": scalarShape}}
	freeShape   = &shape{kind: "map", fields: map[string]*shape{"a": scalarShape, "l": wholeShape, "x1": scalarShape, "m": deepShape, "n": deepShape}}
	textsShape  = &shape{kind: "map", fields: map[string]*shape{"a": scalarShape, "b": scalarShape, "c": scalarShape, "x1": scalarShape}}
	routesShape = &shape{kind: "keyed", fields: map[string]*shape{"port": scalarShape, "x1": scalarShape}}
	specShape   = &shape{kind: "map", fields: map[string]*shape{
		"state": scalarShape, "size": scalarShape, "target": scalarShape, "limits": textsShape, "args": wholeShape, "steps": wholeShape,
		"tags": setShape, "free": freeShape, "x2": freeShape,
		"ports": {kind: "keyed", fields: map[string]*shape{"port": scalarShape, "tags": setShape, "routes": routesShape, "x1": freeShape}},
	}}
	contentShape = &shape{kind: "map", fields: map[string]*shape{
		"metadata": {kind: "map", fields: map[string]*shape{"labels": textsShape, "annotations": textsShape}},
		"spec":     specShape,
		"status":   {kind: "map", fields: map[string]*shape{"phase": scalarShape, "count": scalarShape, "free": freeShape}},
		"data":     freeShape,
	}}
)

// maker makes values by chance, and changes of them.
type maker struct {
	*rand.Rand

	// misfits: some values are not of the type that the schema demands.
	misfits bool
}

func newMaker(seed uint64, misfits bool) maker {
	return maker{rand.New(rand.NewPCG(seed, 1)), misfits}
}

func (m maker) content() map[string]any {
	return m.mapOf(contentShape, 3)
}

func (m maker) value(of *shape, depth int) any {
	switch {
	case m.misfits && m.IntN(20) == 0:
		return []any{nil, "text", []any{}, map[string]any{}, []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}}[m.IntN(5)]
	case m.IntN(20) == 0:
		return nil
	case of.kind == "map":
		return m.mapOf(of, depth)
	case of.kind == "keyed", of.kind == "set":
		return m.change(of, []any{}, depth)
	case of.kind == "whole":
		list := make([]any, m.IntN(3))
		for i := range list {
			list[i] = []any{"a", int64(1), map[string]any{"run": "a", "x1": int64(1)}}[m.IntN(3)]
		}
		return list
	default:
		return []any{int64(1), float64(2), 2.5, "a", "b", true}[m.IntN(6)]
	}
}

func (m maker) mapOf(of *shape, depth int) map[string]any {
	made := map[string]any{}
	if depth == 0 {
		return made
	}
	for _, key := range slices.Sorted(maps.Keys(of.fields)) {
		if m.IntN(2) == 0 {
			made[key] = m.value(of.fields[key], depth-1)
		}
	}
	return made
}

// change returns another value, most of it as it was.
func (m maker) change(of *shape, was any, depth int) any {
	switch was := was.(type) {
	case map[string]any:
		if of.kind == "map" {
			return m.changeMap(of, was, depth)
		}
	case []any:
		if of.kind == "keyed" || of.kind == "set" {
			return m.changeList(of, was, depth)
		}
	}
	return m.value(of, depth)
}

func (m maker) changeMap(of *shape, was map[string]any, depth int) map[string]any {
	changed := maps.Clone(was)
	for _, key := range slices.Sorted(maps.Keys(of.fields)) {
		switch value, ok := was[key]; {
		case m.IntN(3) > 0 || depth == 0:
		case !ok:
			changed[key] = m.value(of.fields[key], depth-1)
		case m.IntN(4) == 0:
			delete(changed, key)
		default:
			changed[key] = m.change(of.fields[key], value, depth-1)
		}
	}
	return changed
}

func (m maker) changeList(of *shape, was []any, depth int) []any {
	names := map[any]bool{}
	changed := []any{}
	for _, item := range was {
		names[nameOf(item)] = true
		switch {
		case m.IntN(5) == 0:
		case of.kind == "keyed" && m.IntN(2) == 0:
			item = m.item(of, item, nameOf(item), depth)
			fallthrough
		default:
			changed = append(changed, item)
		}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if names[name] || m.IntN(3) > 0 {
			continue
		}
		var item any = name
		if of.kind == "keyed" {
			item = m.item(of, map[string]any{}, name, depth)
		}
		changed = slices.Insert(changed, m.IntN(len(changed)+1), item)
	}
	if m.IntN(8) == 0 {
		m.Shuffle(len(changed), func(i, j int) { changed[i], changed[j] = changed[j], changed[i] })
	}
	return changed
}

func (m maker) item(of *shape, was, name any, depth int) any {
	fields, ok := was.(map[string]any)
	if !ok {
		return was
	}
	item := m.changeMap(of, fields, max(depth, 1))
	if name != nil {
		item["name"] = name
	}
	return item
}

func nameOf(item any) any {
	if fields, ok := item.(map[string]any); ok {
		return fields["name"]
	}
	return item
}

// dropped is what a definition without the fields that begin with x keeps.
func dropped(v any) any {
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, value := range v {
			if !strings.HasPrefix(key, "x") {
				kept[key] = dropped(value)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, item := range v {
			kept[i] = dropped(item)
		}
		return kept
	default:
		return v
	}
}

// leaves returns the values of a content by their paths. A map or list that is
// merged by key has a value too, which tells that it is there.
func leaves(content map[string]any) map[string]string {
	found := map[string]string{}
	gather(contentShape, "", content, found)
	return found
}

func gather(of *shape, at string, v any, found map[string]string) {
	found[at] = fmt.Sprint(v)
	switch v := v.(type) {
	case map[string]any:
		if of.kind != "map" && of.kind != "item" {
			return
		}
		found[at] = "a map"
		for key, value := range v {
			field := of.fields[key]
			if field == nil {
				field = scalarShape
			}
			gather(field, at+"."+key, value, found)
		}
	case []any:
		if of.kind != "keyed" && of.kind != "set" {
			return
		}
		found[at] = "a list"
		for _, item := range v {
			if of.kind == "set" {
				gather(scalarShape, fmt.Sprintf("%s[=%q]", at, item), item, found)
				continue
			}
			gather(&shape{kind: "item", fields: of.fields}, fmt.Sprintf("%s[name=%q]", at, nameOf(item)), item, found)
		}
	}
}

// covered reports whether a path is that of a conflict, or of a part of one.
func covered(path string, conflicts []string) bool {
	return slices.ContainsFunc(conflicts, func(conflict string) bool {
		rest, ok := strings.CutPrefix(path, conflict)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}
