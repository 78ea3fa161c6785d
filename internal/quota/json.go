// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import "iter"

// valueCost is what one JSON value takes in memory beside its text, at most: an
// element of a slice of the API's structs has up to 160 bytes, and a slice that grows
// holds up to twice what it needs.
const valueCost = 256

// DecodedJSON returns how many bytes a document may take once it is decoded into the
// API's types: its text, and so much for each value, whether or not it is one of the
// type's fields. It reads the document once and keeps nothing; one that is no JSON
// has a size, too.
func DecodedJSON(doc []byte) int64 {
	values := int64(1)
	for _, b := range Unquoted(doc) {
		if b == '{' || b == '[' || b == ',' {
			values++
		}
	}
	return int64(len(doc)) + values*valueCost
}

// Unquoted yields the bytes of a document that are not in its strings, with their
// places.
func Unquoted(doc []byte) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		quoted, escaped := false, false
		for i, b := range doc {
			switch {
			case escaped:
				escaped = false
			case quoted:
				quoted, escaped = b != '"', b == '\\'
			case b == '"':
				quoted = true
			case !yield(i, b):
				return
			}
		}
	}
}
