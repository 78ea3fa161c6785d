// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"maps"
	"slices"
)

// index has the key that each object refers to, and by key the objects that refer to it. It
// is not safe for concurrent use.
type index[K comparable] struct {
	keys    map[objectKey]K
	objects map[K]map[objectKey]struct{}
}

func newIndex[K comparable]() index[K] {
	return index[K]{keys: map[objectKey]K{}, objects: map[K]map[objectKey]struct{}{}}
}

// set has an object refer to a key, in place of the one before. That is returned if no object
// refers to it any more.
func (x *index[K]) set(r objectKey, key K) (unused K, ok bool) {
	if last, exists := x.keys[r]; exists && last == key {
		return unused, false
	}
	unused, ok = x.delete(r)
	x.keys[r] = key
	if x.objects[key] == nil {
		x.objects[key] = map[objectKey]struct{}{}
	}
	x.objects[key][r] = struct{}{}
	return unused, ok
}

// delete removes an object. The key that it refers to is returned if no other does.
func (x *index[K]) delete(r objectKey) (unused K, ok bool) {
	key, exists := x.keys[r]
	if !exists {
		return unused, false
	}
	delete(x.keys, r)
	delete(x.objects[key], r)
	if len(x.objects[key]) > 0 {
		return unused, false
	}
	delete(x.objects, key)
	return key, true
}

// list returns the objects that refer to a key.
func (x *index[K]) list(key K) []objectKey { return slices.Collect(maps.Keys(x.objects[key])) }
