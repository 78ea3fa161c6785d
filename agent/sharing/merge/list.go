// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// keyedList is a list whose items are told apart by a key: for a set the item itself,
// for a list of type map some of the item's fields.
type keyedList struct {
	keys  []any // strings, in the order of the list
	items map[any]any
	// unknown: nothing is known of the list.
	unknown bool
}

// item returns the item with a key.
func (k keyedList) item(key any) any {
	if k.unknown {
		return unknown{}
	}
	if item, ok := k.items[key]; ok {
		return item
	}
	return absent{}
}

// intersect returns the part of a list that other has too.
func (k keyedList) intersect(other keyedList) keyedList {
	if k.unknown {
		return k
	}
	part := keyedList{keys: make([]any, 0, len(k.keys)), items: make(map[any]any, len(k.keys))}
	for _, key := range k.keys {
		if _, ok := other.items[key]; ok {
			part.keys, part.items[key] = append(part.keys, key), k.items[key]
		}
	}
	return part
}

// isSameOrder reports whether the keys that both lists have are in the same order.
func isSameOrder(a, b keyedList) bool {
	return !a.unknown && !b.unknown && slices.Equal(a.intersect(b).keys, b.intersect(a).keys)
}

// newKeyedList reads a list, or the base of one. It is not ok if that is no list, or if
// an item has no key of its own.
func (s *Schema) newKeyedList(of *schema.List, v any) (list keyedList, ok bool) {
	switch v := v.(type) {
	case unknown:
		return keyedList{unknown: true}, true
	case nil, absent:
		return keyedList{}, true
	case []any:
		list = keyedList{keys: make([]any, len(v)), items: make(map[any]any, len(v))}
		for i, item := range v {
			key, ok := s.itemKey(of, item)
			if !ok {
				return keyedList{}, false
			}
			list.keys[i], list.items[key] = key, item
		}
		return list, len(list.items) == len(v)
	default:
		return keyedList{}, false
	}
}

// itemKey is a text that an item has in common with the same item of another list.
func (s *Schema) itemKey(of *schema.List, item any) (string, bool) {
	if len(of.Keys) == 0 {
		return scalarKey(item)
	}
	fields := make([]string, len(of.Keys))
	for i, name := range of.Keys {
		text, ok := scalarKey(s.keyField(of, item, name))
		if !ok {
			return "", false
		}
		fields[i] = text
	}
	return strings.Join(fields, ","), true
}

// keyField is the value of one of an item's key fields; one that is absent has
// the schema's default.
func (s *Schema) keyField(of *schema.List, item any, name string) any {
	key := lookup(item, name)
	if key != (absent{}) {
		return key
	}
	if fields := s.item(of).Map; fields != nil {
		field, _ := fields.FindField(name)
		return field.Default
	}
	return nil
}

// element names an item in a path.
func (s *Schema) element(of *schema.List, item any) fieldpath.PathElement {
	if len(of.Keys) == 0 {
		return fieldpath.ValueElement(value.NewValueInterface(item))
	}
	fields := make(value.FieldList, len(of.Keys))
	for i, name := range of.Keys {
		fields[i] = value.Field{Name: name, Value: value.NewValueInterface(s.keyField(of, item, name))}
	}
	fields.Sort()
	return fieldpath.KeyElement(fields...)
}

// mergeLists merges two lists item by item. It is not ok if the schema or a list
// demands that they are decided as one.
func (w *walker) mergeLists(of *schema.List, at fieldpath.Path, bases []sides[any], now sides[any]) (next sides[any], ok bool) {
	_, ok = now.hub.([]any)
	_, also := now.spoke.([]any)
	if !ok || !also || of == nil || of.ElementRelationship != schema.Associative {
		return sides[any]{}, false
	}
	lists, ok := w.schema.newKeyedLists(of, append([]sides[any]{now}, bases...))
	if !ok {
		return sides[any]{}, false
	}
	is, were := lists[0], lists[1:]
	order := w.mergeOrder(at, were, is)
	merged := sides[map[any]any]{make(map[any]any, len(order.hub)), make(map[any]any, len(order.hub))}
	for _, key := range order.hub { // which has the spoke's keys too
		items := sides[any]{is.hub.item(key), is.spoke.item(key)}
		known := items.hub
		if known == (absent{}) {
			known = items.spoke
		}
		item := w.merge(w.schema.item(of), append(at, w.schema.element(of, known)), itemsOf(were, key), items)
		merged.hub[key], merged.spoke[key] = item.hub, item.spoke
	}
	return sides[any]{orderedItems(merged.hub, order.hub), orderedItems(merged.spoke, order.spoke)}, true
}

func (s *Schema) newKeyedLists(of *schema.List, pairs []sides[any]) (lists []sides[keyedList], ok bool) {
	lists = make([]sides[keyedList], len(pairs))
	for i, pair := range pairs {
		hub, ok := s.newKeyedList(of, pair.hub)
		spoke, also := s.newKeyedList(of, pair.spoke)
		if !ok || !also {
			return nil, false
		}
		lists[i] = sides[keyedList]{hub, spoke}
	}
	return lists, true
}

func itemsOf(lists []sides[keyedList], key any) []sides[any] {
	items := make([]sides[any], len(lists))
	for i, list := range lists {
		items[i] = sides[any]{list.hub.item(key), list.spoke.item(key)}
	}
	return items
}

// orderedItems returns the items that are there.
func orderedItems(items map[any]any, order []any) []any {
	list := make([]any, 0, len(order))
	for _, key := range order {
		if item := items[key]; item != (absent{}) {
			list = append(list, item)
		}
	}
	return list
}

// mergeOrder returns the keys of both lists in the order that each side's list
// is to have. The order of the keys that both lists have is merged as one value;
// every other key keeps its place before the key that follows it in its own list.
func (w *walker) mergeOrder(at fieldpath.Path, bases []sides[keyedList], now sides[keyedList]) sides[[]any] {
	common := sides[keyedList]{now.hub.intersect(now.spoke), now.spoke.intersect(now.hub)}
	order := sides[any]{common.hub.keys, common.spoke.keys}
	if !isSameOrder(common.hub, common.spoke) {
		were := make([]sides[any], len(bases))
		for i, base := range bases {
			were[i] = unchangedOrders(base, common)
		}
		order = w.mergeWhole(at, were, order)
	}
	first, second := now.hub.keys, now.spoke.keys
	if w.winner == Spoke {
		first, second = second, first
	}
	return sides[[]any]{insertMissing(order.hub, first, second), insertMissing(order.spoke, first, second)}
}

// unchangedOrders returns, as the base of its order now, the order of each side that
// has left its base's items as they were among each other, and unknown for a side
// that has not.
func unchangedOrders(base, common sides[keyedList]) sides[any] {
	kept := sides[any]{unknown{}, unknown{}}
	hub, spoke := isSameOrder(base.hub, common.hub), isSameOrder(base.spoke, common.spoke)
	if hub && spoke && isSameOrder(base.hub.intersect(common.hub), base.spoke) {
		return kept // both have added the same items, at different places
	}
	if hub {
		kept.hub = common.hub.keys
	}
	if spoke {
		kept.spoke = common.spoke.keys
	}
	return kept
}

// insertMissing adds to an order the keys that it lacks of other lists, each before the
// key that follows it there.
func insertMissing(order any, lists ...[]any) []any {
	woven, _ := order.([]any)
	for _, list := range lists {
		woven = insertMissingOf(woven, list)
	}
	return woven
}

func insertMissingOf(order, list []any) []any {
	known := make(map[any]bool, len(order))
	for _, key := range order {
		known[key] = true
	}
	var pending []any // the keys that no known one has followed so far
	before := map[any][]any{}
	for _, key := range list {
		if !known[key] {
			pending = append(pending, key)
			continue
		}
		before[key], pending = pending, nil
	}
	woven := make([]any, 0, len(order)+len(list))
	for _, key := range order {
		woven = append(append(woven, before[key]...), key)
	}
	return slices.Concat(woven, pending)
}
