// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// walker carries out one merge, from the whole content down.
type walker struct {
	schema *Schema
	winner Side
	// uncertain is the side whose write has an outcome that is not known, if there are two
	// bases.
	uncertain Side
	conflicts []string
}

// merge returns what a value becomes on both sides. The bases are what it may
// have been when both were last in sync: one, or more if the merge is uncertain.
func (w *walker) merge(atom schema.Atom, at fieldpath.Path, bases []sides[any], now sides[any]) sides[any] {
	if isEqual(now.hub, now.spoke) {
		return now
	}
	if next, ok := mergeUndivided(bases, now); ok {
		return next
	}
	if next, ok := w.mergeMaps(atom.Map, at, bases, now); ok {
		return next
	}
	if next, ok := w.mergeLists(atom.List, at, bases, now); ok {
		return next
	}
	return w.mergeWhole(at, bases, now)
}

// mergeUndivided takes a value undivided where that gives what a merge of its parts
// would: nobody changed it, or one side did and there is nothing that the other
// side's definition has dropped from it.
func mergeUndivided(bases []sides[any], now sides[any]) (next sides[any], ok bool) {
	if len(bases) != 1 {
		return sides[any]{}, false
	}
	base := bases[0]
	hub, spoke := isEqual(base.hub, now.hub), isEqual(base.spoke, now.spoke)
	switch {
	case hub && spoke:
		return now, true
	case !hub && !spoke || !isEqual(base.hub, base.spoke):
		return sides[any]{}, false
	case hub:
		return sides[any]{now.spoke, now.spoke}, true
	default:
		return sides[any]{now.hub, now.hub}, true
	}
}

// matchingBases returns the bases that may hold for a value: the one of two whose value the
// written side has, or all. Who set a value back to just what it was before the write is
// not noticed.
func (w *walker) matchingBases(bases []sides[any], now sides[any]) []sides[any] {
	if len(bases) != 2 {
		return bases
	}
	has := now.of(w.uncertain)
	first, second := isEqual(bases[0].of(w.uncertain), has), isEqual(bases[1].of(w.uncertain), has)
	switch {
	case first && !second:
		return bases[:1]
	case second && !first:
		return bases[1:]
	default:
		return bases
	}
}

// mergeWhole decides a value as one, and notes it as a conflict if both sides
// changed it or if not every base gives the same.
func (w *walker) mergeWhole(at fieldpath.Path, bases []sides[any], now sides[any]) sides[any] {
	bases = w.matchingBases(bases, now)
	next, conflict := decide(bases[0], now)
	for _, base := range bases[1:] {
		other, also := decide(base, now)
		conflict = conflict || also || !isEqual(next.hub, other.hub) || !isEqual(next.spoke, other.spoke)
	}
	if !conflict {
		return next
	}
	w.conflicts = append(w.conflicts, at.String())
	won := now.of(w.winner)
	return sides[any]{won, won}
}

// decide returns what becomes of a value that is not the same on both sides, or
// that both changed it.
func decide(base, now sides[any]) (next sides[any], conflict bool) {
	hub, spoke := isEqual(base.hub, now.hub), isEqual(base.spoke, now.spoke)
	switch {
	case hub && spoke:
		return now, false
	case hub:
		return sides[any]{now.spoke, now.spoke}, false
	case spoke:
		return sides[any]{now.hub, now.hub}, false
	default:
		return sides[any]{}, true
	}
}

// mergeMaps merges two maps key by key. It is not ok if the schema or a value
// demands that they are decided as one.
func (w *walker) mergeMaps(of *schema.Map, at fieldpath.Path, bases []sides[any], now sides[any]) (next sides[any], ok bool) {
	hub, ok := now.hub.(map[string]any)
	spoke, also := now.spoke.(map[string]any)
	if !ok || !also || of == nil || of.ElementRelationship == schema.Atomic {
		return sides[any]{}, false
	}
	for _, base := range bases {
		if !wasMap(base.hub) || !wasMap(base.spoke) {
			return sides[any]{}, false
		}
	}
	merged := sides[map[string]any]{make(map[string]any, len(hub)), make(map[string]any, len(spoke))}
	merge := func(key string) {
		value := w.merge(w.schema.field(of, key), append(at, fieldpath.FieldNameElement(key)), lookups(bases, key),
			sides[any]{lookup(hub, key), lookup(spoke, key)})
		put(merged.hub, key, value.hub)
		put(merged.spoke, key, value.spoke)
	}
	for key := range hub {
		merge(key)
	}
	for key := range spoke {
		if _, done := hub[key]; !done {
			merge(key)
		}
	}
	return sides[any]{merged.hub, merged.spoke}, true
}

// wasMap reports whether a base is a map, or stands for one without keys.
func wasMap(base any) bool {
	switch base.(type) {
	case map[string]any, nil, absent, unknown:
		return true
	default:
		return false
	}
}

func lookups(bases []sides[any], key string) []sides[any] {
	values := make([]sides[any], len(bases))
	for i, base := range bases {
		values[i] = sides[any]{lookup(base.hub, key), lookup(base.spoke, key)}
	}
	return values
}

func put(m map[string]any, key string, value any) {
	if value != (absent{}) {
		m[key] = value
	}
}
