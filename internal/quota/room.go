// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import "slices"

// Room is a bounded list of places with an eviction rule: a newcomer always gets a place. When
// its holder has all of its share, the holder's oldest is evicted. When the room is full, the
// oldest of the holder with the most is evicted, so that a holder that fills the room evicts
// its own. It is not safe for concurrent use.
type Room[T comparable] struct {
	places, perHolder int
	taken             int
	holders           map[string][]T // oldest first, none empty
}

// NewRoom returns a Room with so many places, and so many for each holder.
func NewRoom[T comparable](places, perHolder int) *Room[T] {
	return &Room[T]{places: places, perHolder: perHolder, holders: map[string][]T{}}
}

// Add gives a newcomer a place. If full is true the caller must remove oldest, which still has
// its place.
func (r *Room[T]) Add(holder string, newcomer T) (oldest T, full bool) {
	own := r.holders[holder]
	switch {
	case len(own) >= r.perHolder:
		oldest, full = own[0], true
	case r.taken >= r.places:
		oldest, full = r.crowd()[0], true
	}
	r.holders[holder] = append(own, newcomer)
	r.taken++
	return oldest, full
}

// crowd returns what the holder with the most has.
func (r *Room[T]) crowd() (most []T) {
	for _, own := range r.holders {
		if len(own) > len(most) {
			most = own
		}
	}
	return most
}

// Remove frees a place, if it is taken.
func (r *Room[T]) Remove(holder string, it T) {
	own := r.holders[holder]
	i := slices.Index(own, it)
	if i < 0 {
		return
	}
	r.taken--
	if r.holders[holder] = slices.Delete(own, i, i+1); len(own) == 1 {
		delete(r.holders, holder)
	}
}
