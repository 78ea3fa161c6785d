// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

// index finds what is stored of a manifest by its identity K, then by its
// identity without the ordinal where only one has that.
type index[K comparable, M any] struct {
	exact, loose map[K]M
	// anywhere takes the ordinal out of an identity.
	anywhere func(K) K
}

func newIndex[K comparable, M any](list []M, of func(M) K, anywhere func(K) K) index[K, M] {
	x := index[K, M]{exact: make(map[K]M, len(list)), loose: make(map[K]M, len(list)), anywhere: anywhere}
	count := make(map[K]int, len(list))
	for _, m := range list {
		id := of(m)
		x.exact[id] = m
		id = anywhere(id)
		x.loose[id] = m
		count[id]++
	}
	for id, n := range count {
		if n > 1 {
			delete(x.loose, id)
		}
	}
	return x
}

// find returns the zero value for a manifest that is new.
func (x index[K, M]) find(id K) M {
	if m, ok := x.exact[id]; ok {
		return m
	}
	return x.loose[x.anywhere(id)]
}
