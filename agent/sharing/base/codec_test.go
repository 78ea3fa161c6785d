// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
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
func zipped(parts ...string) []byte {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	for _, part := range parts {
		_, _ = zip.Write([]byte(part))
	}
	_ = zip.Close()
	return out.Bytes()
}

func varint(n uint64) string { return string(binary.AppendUvarint(nil, n)) }

func text(s string) string { return varint(uint64(len(s))) + s }

// sameEntry compares large values as a whole, and takes no entries for an empty list.
var sameEntry = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(x, y entry) bool {
	return x.key == y.key && x.deleted == y.deleted && bytes.Equal(x.value, y.value)
})}

func TestASegmentIsReadAsItWasWritten(t *testing.T) {
	many := make([]entry, maxEntries)
	for i := range many {
		many[i].key = fmt.Sprintf("%06d", i)
	}
	cases := map[string]struct {
		reason   string
		sequence uint64
		entries  []entry
	}{
		"Empty":    {reason: "It has nothing but its sequence."},
		"Values":   {reason: "Values are bytes.", sequence: 300, entries: []entry{{key: "", value: []byte{0, 'v', 255}}, {key: "b", value: []byte{}}}},
		"Deleted":  {reason: "A tombstone has no value.", sequence: math.MaxUint64, entries: []entry{{key: "a", deleted: true}, {key: "b", value: []byte("1")}}},
		"Many":     {reason: "As many as there may be.", entries: many},
		"Large":    {reason: "As large as it may be.", entries: []entry{{key: "a", value: make([]byte, maxContent-100)}}},
		"LongName": {reason: "As long as a key may be.", entries: []entry{{key: strings.Repeat("k", maxKey), deleted: true}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sequence, entries, err := decode(encode(newZip(), tc.sequence, tc.entries))
			if err != nil || sequence != tc.sequence {
				t.Fatalf("%s\nsequence is %d, want %d, error %v", tc.reason, sequence, tc.sequence, err)
			}
			if diff := cmp.Diff(tc.entries, entries, sameEntry); diff != "" {
				t.Errorf("%s\nentries (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWhatIsNoSegmentIsRefused(t *testing.T) {
	whole := encode(newZip(), 1, []entry{{key: "a", value: []byte("1")}})
	damaged := slices.Clone(whole)
	damaged[len(damaged)-6] ^= 1 // the checksum
	entries := func(n int) string {
		var out strings.Builder
		for i := range n {
			out.WriteString("t" + text(fmt.Sprintf("%06d", i)))
		}
		return out.String()
	}
	cases := map[string]struct {
		reason  string
		content []byte
	}{
		"Nothing":       {reason: "There is no content.", content: nil},
		"Text":          {reason: "It is not compressed.", content: []byte(magic)},
		"Truncated":     {reason: "The checksum is missing.", content: whole[:len(whole)-8]},
		"Damaged":       {reason: "The checksum is another.", content: damaged},
		"AnotherFormat": {reason: "A later version may have one.", content: zipped("spokelet-base-2\n", varint(1))},
		"NoSequence":    {reason: "Nothing says how new it is.", content: zipped(magic)},
		"HalfSequence":  {reason: "A number ends.", content: zipped(magic, "\xff")},
		"LongSequence":  {reason: "A number has 64 bits.", content: zipped(magic, strings.Repeat("\xff", 10))},
		"AnotherKind":   {reason: "An entry is a value or a tombstone.", content: zipped(magic, varint(1), "x", text("a"))},
		"NoKey":         {reason: "An entry has a key.", content: zipped(magic, varint(1), "v")},
		"HalfKey":       {reason: "The key is shorter than it is said to be.", content: zipped(magic, varint(1), "v", varint(5), "a")},
		"NoValue":       {reason: "The value is missing.", content: zipped(magic, varint(1), "v", text("a"))},
		"HalfValue":     {reason: "The value is shorter than it is said to be.", content: zipped(magic, varint(1), "v", text("a"), varint(5), "1")},
		"LongKey":       {reason: "No key is so long.", content: zipped(magic, varint(1), "t", text(strings.Repeat("k", maxKey+1)))},
		"LongValue":     {reason: "No memory is taken for a length alone.", content: zipped(magic, varint(1), "v", text("a"), varint(math.MaxUint64))},
		"Twice":         {reason: "A key is there once.", content: zipped(magic, varint(1), "t", text("a"), "t", text("a"))},
		"Unsorted":      {reason: "Keys ascend.", content: zipped(magic, varint(1), "t", text("b"), "t", text("a"))},
		"TooMany":       {reason: "Tiny entries take much memory.", content: zipped(magic, varint(1), entries(maxEntries+1))},
		"TooLarge":      {reason: "A small Secret may be a large one.", content: zipped(magic, varint(1), "v", text("a"), text(strings.Repeat("1", maxContent)))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, entries, err := decode(tc.content); err == nil {
				t.Errorf("%s\nit has %d entries", tc.reason, len(entries))
			}
		})
	}
}

func TestAHostileSegmentTakesLittleMemory(t *testing.T) {
	bomb := zipped(magic, varint(1), "v", text("a"), varint(maxContent), strings.Repeat("1", 4*maxContent))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := decode(bomb); err == nil {
		t.Error("it was read")
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 2*maxContent {
		t.Errorf("%d bytes, want at most %d", allocated, 2*maxContent)
	}
}

// FuzzDecode: whatever is stored, it is refused, or is read and written and read again as
// the same. Compressed by the target itself, so that it gets past the checksum, or as is.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(magic+varint(7)+"v"+text("a")+text("1")+"t"+text("b")), true)
	f.Add(encode(newZip(), 7, []entry{{key: "a", value: []byte("1")}}), false)
	f.Fuzz(func(t *testing.T, content []byte, compress bool) {
		if compress {
			content = zipped(string(content))
		}
		sequence, entries, err := decode(content)
		if err != nil {
			return
		}
		size := 0
		for _, e := range entries {
			size += len(e.key) + len(e.value)
		}
		if size > maxContent || len(entries) > maxEntries {
			t.Fatalf("%d entries of %d bytes", len(entries), size)
		}
		again, same, err := decode(encode(newZip(), sequence, entries))
		if err != nil || again != sequence {
			t.Fatalf("sequence is %d, then %d, error %v", sequence, again, err)
		}
		if diff := cmp.Diff(entries, same, sameEntry); diff != "" {
			t.Errorf("entries (-first +second):\n%s", diff)
		}
	})
}
