// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// omittedItemSize is counted for an omitted item, in bytes.
	omittedItemSize = 32
	// separator is the size of what follows an item in a list.
	separator = len(",")
)

// memoryBudget counts the memory of the answers of all views.
type memoryBudget struct {
	used  atomic.Int64 // bytes
	limit int64
	// waiting counts the views that are refused because of a limit, of memory or of views.
	waiting atomic.Int64
}

// item is one object of a list, encoded.
type item struct {
	// key is namespace/name.
	key     string
	raw     []byte
	deleted bool
}

// list is the answer of a view: the first items, encoded, and the number of omitted items,
// which do not fit. It is not safe for concurrent use.
type list struct {
	spec    wire.View
	mapping *meta.RESTMapping
	memory  *memoryBudget
	// columns of a Table, and the size of the list without items, in bytes.
	columns  json.RawMessage
	overhead int

	// keys of the kept items, in order.
	keys  []string
	items map[string][]byte
	size  int // of the items with separators
	// omitted are the hashes of keys that did not fit, which are all greater than each of
	// keys. next is the first of them; nil when that is not known.
	omitted      map[uint64]struct{}
	firstOmitted *omittedItem
	// accounted is the share of this list in memory.held.
	accounted int64
}

// omittedItem is an item after the cut.
type omittedItem struct {
	key  string
	size int
}

var seed = maphash.MakeSeed()

func newList(spec wire.View, m *meta.RESTMapping, mem *memoryBudget) *list {
	l := &list{spec: spec, mapping: m, memory: mem, items: map[string][]byte{}, omitted: map[uint64]struct{}{}}
	l.setColumns(json.RawMessage("[]"))
	return l
}

// setColumns sets the columns of a Table.
func (l *list) setColumns(columns json.RawMessage) {
	if bytes.Equal(l.columns, columns) {
		return
	}
	l.columns = columns
	before, after := l.framing(math.MaxInt)
	l.overhead = len(before) + len(after)
}

// update applies an event and reports whether the answer changes. The error refuses the
// view: when the views have reached their memory limit, a list may change but not grow.
func (l *list) update(i item) (changed bool, err error) {
	before := l.accounted
	changed = l.applyEvent(i)
	l.account()
	if l.accounted > before && l.memory.used.Load() > l.memory.limit {
		return false, fmt.Errorf("%w: limit is %d bytes", errLimit, l.memory.limit)
	}
	return changed, nil
}

func (l *list) applyEvent(i item) (changed bool) {
	switch {
	case i.deleted:
		return l.remove(i.key)
	case bytes.Equal(l.items[i.key], i.raw):
		return false
	default:
		return l.set(i.key, i.raw)
	}
}

// remove removes an item.
func (l *list) remove(key string) (changed bool) {
	if raw, ok := l.items[key]; ok {
		i, _ := slices.BinarySearch(l.keys, key)
		l.keys = slices.Delete(l.keys, i, i+1)
		l.size -= len(raw) + separator
		delete(l.items, key)
		return true
	}
	mark := maphash.String(seed, key)
	if _, ok := l.omitted[mark]; !ok {
		return false
	}
	delete(l.omitted, mark)
	if len(l.omitted) == 0 || l.firstOmitted != nil && l.firstOmitted.key == key {
		l.firstOmitted = nil
	}
	return true
}

// set adds or replaces an item, and omits the items that do not fit any more.
func (l *list) set(key string, raw []byte) (changed bool) {
	at, kept := slices.BinarySearch(l.keys, key)
	if !kept && at == len(l.keys) && l.isBeyondCut(key) {
		return l.omit(key, len(raw)+separator)
	}
	if kept {
		l.size -= len(l.items[key]) + separator
	} else {
		l.keys = slices.Insert(l.keys, at, key)
	}
	l.items[key] = raw
	l.size += len(raw) + separator
	for !l.isSingle() && len(l.keys) > 0 && l.size > l.capacity() {
		l.omitLast()
	}
	return true
}

// isBeyondCut reports whether a key that is greater than those of all items belongs after the
// cut. It does if the first omitted item is not known, which may be smaller.
func (l *list) isBeyondCut(key string) bool {
	return len(l.omitted) > 0 && (l.firstOmitted == nil || key >= l.firstOmitted.key)
}

// omit counts an item after the cut.
func (l *list) omit(key string, size int) (changed bool) {
	mark := maphash.String(seed, key)
	_, known := l.omitted[mark]
	l.omitted[mark] = struct{}{}
	if l.firstOmitted != nil && l.firstOmitted.key == key {
		l.firstOmitted.size = size
	}
	return !known
}

// omitLast moves the last of the items behind the cut.
func (l *list) omitLast() {
	last := l.keys[len(l.keys)-1]
	size := len(l.items[last]) + separator
	l.keys = l.keys[:len(l.keys)-1]
	delete(l.items, last)
	l.size -= size
	l.omitted[maphash.String(seed, last)] = struct{}{}
	l.firstOmitted = &omittedItem{key: last, size: size}
}

// shouldReload reports whether half of the capacity is free, and an omitted item fits in it,
// or may fit.
func (l *list) shouldReload() bool {
	if len(l.omitted) == 0 || l.size > l.capacity()/2 {
		return false
	}
	return l.firstOmitted == nil || l.size+l.firstOmitted.size <= l.capacity()
}

// isSingle reports whether one object is requested.
func (l *list) isSingle() bool { return l.spec.Target.Name != "" }

// capacity is the space for items, in bytes.
func (l *list) capacity() int { return l.spec.MaxBytes - l.overhead }

// account brings memory.held up to date.
func (l *list) account() {
	now := int64(l.size + len(l.omitted)*omittedItemSize)
	l.memory.used.Add(now - l.accounted)
	l.accounted = now
}

// releaseAccount leaves a list out of memory.held while another is read in its place: the two
// share what has not changed, and a renewal is not to be refused for want of memory.
func (l *list) releaseAccount() {
	l.memory.used.Add(-l.accounted)
	l.accounted = 0
}

// release releases the memory of the list.
func (l *list) release() {
	l.keys, l.items, l.size, l.omitted, l.firstOmitted = nil, map[string][]byte{}, 0, map[uint64]struct{}{}, nil
	l.account()
}

// encode returns the body of the answer: last, if it is equal. The items share its memory
// from then on.
func (l *list) encode(last []byte) []byte {
	name := l.mapping.Resource.GroupResource().String()
	tooLarge := func(what string, size int) []byte {
		message := fmt.Sprintf("%s has %d bytes of JSON, the limit of the view is %d", what, size, l.spec.MaxBytes)
		return encodeRefusal(wire.Refuse(wire.CauseLimit, metav1.StatusReasonRequestEntityTooLarge, message))
	}
	if !l.isSingle() {
		if l.capacity() < 0 {
			return tooLarge("an empty list of "+name, l.overhead)
		}
		before, after := l.framing(len(l.omitted))
		return l.encodeItems(before, after, last)
	}
	what := fmt.Sprintf("%s %q", name, l.spec.Target.Name)
	switch {
	case len(l.keys) == 0:
		return encodeRefusal(wire.Refuse(wire.CauseRequest, metav1.StatusReasonNotFound, what+" not found"))
	case len(l.items[l.keys[0]]) > l.spec.MaxBytes:
		return tooLarge(what, len(l.items[l.keys[0]]))
	default:
		return l.encodeItems("", "", last)
	}
}

// framing returns what precedes and follows the items of a list. The resource version is left
// out, because it would differ with each event.
func (l *list) framing(cut int) (before, after string) {
	metadata := "{}"
	if cut > 0 {
		metadata = `{"remainingItemCount":` + strconv.Itoa(cut) + "}"
	}
	if l.spec.Table {
		return `{"apiVersion":"meta.k8s.io/v1","columnDefinitions":` + string(l.columns) +
			`,"kind":"Table","metadata":` + metadata + `,"rows":[`, "]}"
	}
	if l.spec.Releases {
		return `{"apiVersion":` + quoteJSON(v1alpha1.GroupVersion.String()) + `,"items":[`,
			`],"kind":` + quoteJSON(v1alpha1.ResultHelmListKind) + `,"metadata":` + metadata + "}"
	}
	gvk := l.mapping.GroupVersionKind
	return `{"apiVersion":` + quoteJSON(gvk.GroupVersion().String()) + `,"items":[`,
		`],"kind":` + quoteJSON(gvk.Kind+"List") + `,"metadata":` + metadata + "}"
}

// quoteJSON encodes a name, which an aggregated API server may have chosen.
func quoteJSON(name string) string {
	raw, _ := json.Marshal(name) //nolint:errchkjson // a string has JSON
	return string(raw)
}

// encodeItems encodes a wire.ViewResult without copying its result.
func (l *list) encodeItems(before, after string, last []byte) []byte {
	before = `{"result":` + before
	after += l.encodeFlags()
	b := make([]byte, 0, len(before)+l.size+len(after))
	b = append(b, before...)
	for i, key := range l.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, l.items[key]...)
	}
	b = append(b, after...)
	if bytes.Equal(b, last) {
		b = last
	}
	l.aliasItems(b[len(before):])
	return b
}

// aliasItems makes the items share the memory of an answer, which has them in order.
func (l *list) aliasItems(joined []byte) {
	for _, key := range l.keys {
		end := len(l.items[key])
		l.items[key] = joined[:end:end]
		joined = joined[min(end+separator, len(joined)):]
	}
}

// encodeFlags encodes the fields of a wire.ViewResult after its result, to its end.
func (l *list) encodeFlags() string {
	text := ""
	if len(l.omitted) > 0 {
		text = `,"cut":` + strconv.Itoa(len(l.omitted))
	}
	if !isNamespaced(l.mapping) {
		text += `,"clusterScoped":true`
	}
	return text + "}"
}
