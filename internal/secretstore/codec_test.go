// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// zipped compresses what encode would not write.
func zipped(parts ...[]byte) []byte {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	for _, part := range parts {
		_, _ = zip.Write(part)
	}
	_ = zip.Close()
	return out.Bytes()
}

func gobOf(t testing.TB, value any) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(value); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sameEntry compares large values as a whole.
func sameEntry(x, y entry) bool {
	return x.Key == y.Key && x.Deleted == y.Deleted && bytes.Equal(x.Value, y.Value)
}

func TestDecodeReturnsWhatWasEncoded(t *testing.T) {
	many := make([]entry, maxSegment/entryOverhead)
	for i := range many {
		many[i].Key = fmt.Sprintf("%06d", i)
	}
	cases := map[string]struct {
		reason string
		want   content
	}{
		"Empty":    {reason: "It has nothing but its sequence.", want: content{Sequence: 1}},
		"Values":   {reason: "Values are bytes.", want: content{Sequence: 300, Entries: []entry{{Key: "", Value: []byte{0, 'v', 255}}, {Key: "b", Value: []byte{}}}}},
		"Deleted":  {reason: "A tombstone has no value.", want: content{Sequence: math.MaxUint64, Entries: []entry{{Key: "a", Deleted: true}, {Key: "b", Value: []byte("1")}}}},
		"Many":     {reason: "As many as there may be.", want: content{Entries: many}},
		"Large":    {reason: "As large as it may be.", want: content{Entries: []entry{{Key: "a", Value: make([]byte, maxContent-1000)}}}},
		"LongName": {reason: "As long as a key may be.", want: content{Entries: []entry{{Key: strings.Repeat("k", maxKey), Deleted: true}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := decode(encode(newZip(), tc.want))
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty(), cmp.Comparer(sameEntry)); diff != "" {
				t.Errorf("%s\ncontent (-want +got):\n%.500s", tc.reason, diff)
			}
		})
	}
}

func TestDecodeRefusesOtherContent(t *testing.T) {
	whole := encode(newZip(), content{Sequence: 1, Entries: []entry{{Key: "a", Value: []byte("1")}}})
	plain := gobOf(t, content{Sequence: 1, Entries: []entry{{Key: "a", Value: []byte("1")}}})
	damaged := slices.Clone(whole)
	damaged[len(damaged)-6] ^= 1 // the checksum
	cases := map[string]struct {
		reason string
		stored []byte
	}{
		"Nothing":   {reason: "There is no content."},
		"Plain":     {reason: "It is not compressed.", stored: plain},
		"Truncated": {reason: "The checksum is missing.", stored: whole[:len(whole)-8]},
		"Damaged":   {reason: "The checksum is another.", stored: damaged},
		"OtherType": {reason: "It is not the content of a segment.", stored: zipped(gobOf(t, "text"))},
		"Half":      {reason: "An entry ends early.", stored: zipped(plain[:len(plain)-3])},
		"Twice":     {reason: "A segment has one content.", stored: zipped(plain, plain)},
		"TooLarge":  {reason: "A small Secret may be a large one.", stored: zipped(gobOf(t, content{Entries: []entry{{Key: "a", Value: make([]byte, maxContent)}}}))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := decode(tc.stored); err == nil {
				t.Errorf("%s\nit has %d entries", tc.reason, len(got.Entries))
			}
		})
	}
}

func TestDecodeOfBombTakesLittleMemory(t *testing.T) {
	bomb := zipped(gobOf(t, content{Entries: []entry{{Key: "a", Value: make([]byte, 4*maxContent)}}}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := decode(bomb); err == nil {
		t.Error("it was read")
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4*maxContent {
		t.Errorf("%d bytes, want at most %d", allocated, 4*maxContent)
	}
}
