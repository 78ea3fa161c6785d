// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

// manifestIndex finds what is stored of a manifest by its identity K, then by its
// identity without the ordinal where only one has that.
type manifestIndex[K comparable, M any] struct {
	byIdentity, byIdentityWithoutOrdinal map[K]M
	// withoutOrdinal takes the ordinal out of an identity.
	withoutOrdinal func(K) K
}

func newManifestIndex[K comparable, M any](list []M, of func(M) K, anywhere func(K) K) manifestIndex[K, M] {
	x := manifestIndex[K, M]{byIdentity: make(map[K]M, len(list)), byIdentityWithoutOrdinal: make(map[K]M, len(list)), withoutOrdinal: anywhere}
	count := make(map[K]int, len(list))
	for _, m := range list {
		id := of(m)
		x.byIdentity[id] = m
		id = anywhere(id)
		x.byIdentityWithoutOrdinal[id] = m
		count[id]++
	}
	for id, n := range count {
		if n > 1 {
			delete(x.byIdentityWithoutOrdinal, id)
		}
	}
	return x
}

// find returns the zero value for a manifest that is new.
func (x manifestIndex[K, M]) find(id K) M {
	if m, ok := x.byIdentity[id]; ok {
		return m
	}
	return x.byIdentityWithoutOrdinal[x.withoutOrdinal(id)]
}
