// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import "sigs.k8s.io/structured-merge-diff/v6/schema"

// Prune returns what was written without what was not got back: with the answer
// to a write for got it is the base of that side, for a field that the side's
// definition drops was not removed by anybody. Where got has another value, or
// one that was not written, that is somebody's change, and the result has what
// was written. Neither argument is changed, and the result may share parts with
// wrote. If wrote is nil, so is the result.
//
// Items of a list are looked for by key, or by position where that explains the
// whole list: it is then as it was written but for dropped fields.
func (s *Schema) Prune(wrote, got map[string]any) map[string]any {
	if wrote == nil || isEqual(wrote, got) {
		return wrote
	}
	return s.pruneMap(s.content().Map, wrote, got)
}

func (s *Schema) prune(atom schema.Atom, wrote, got any) any {
	switch wrote := wrote.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			return s.pruneMap(atom.Map, wrote, got)
		}
	case []any:
		if got, ok := got.([]any); ok {
			return s.pruneList(atom.List, wrote, got)
		}
	}
	return wrote
}

func (s *Schema) pruneMap(of *schema.Map, wrote, got map[string]any) map[string]any {
	kept := make(map[string]any, len(wrote))
	for key, value := range wrote {
		if other, ok := got[key]; ok {
			kept[key] = s.prune(s.field(of, key), value, other)
		}
	}
	return kept
}

func (s *Schema) pruneList(of *schema.List, wrote, got []any) []any {
	if of == nil || of.ElementRelationship != schema.Associative {
		return s.pruneByPosition(of, wrote, got)
	}
	lists, ok := s.newKeyedLists(of, []sides[any]{{wrote, got}})
	if !ok {
		return s.pruneByPosition(of, wrote, got)
	}
	kept := make([]any, 0, len(wrote))
	for i, key := range lists[0].hub.keys {
		if other, ok := lists[0].spoke.items[key]; ok {
			kept = append(kept, s.prune(s.item(of), wrote[i], other))
		}
	}
	return kept
}

func (s *Schema) pruneByPosition(of *schema.List, wrote, got []any) []any {
	if len(wrote) != len(got) {
		return wrote
	}
	kept := make([]any, len(wrote))
	for i, item := range wrote {
		kept[i] = s.prune(s.item(of), item, got[i])
	}
	if !isEqual(kept, got) {
		return wrote
	}
	return kept
}
