// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEvictionListEvictsForEveryNewcomer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		places    int
		perHolder int
		come      string // holders, in order
		want      []int  // who has to leave, in order, by the order of coming
	}{
		"room for all":              {"nobody has to leave", 4, 2, "a a b c", nil},
		"a holder beyond its share": {"it evicts its own oldest", 9, 2, "a b a a a", []int{0, 2}},
		"a full room":               {"the oldest of the holder with the most leaves", 4, 3, "b a a a c d", []int{1, 2}},
		"a share before the room":   {"a holder in its share does not cost others theirs", 3, 2, "a b b b", []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRoom[int](tc.places, tc.perHolder)
			var holders []string
			var left []int
			for holder := range strings.FieldsSeq(tc.come) {
				holders = append(holders, holder)
				if oldest, full := r.Add(holder, len(holders)-1); full {
					left = append(left, oldest)
					r.Remove(holders[oldest], oldest)
				}
			}
			if diff := cmp.Diff(tc.want, left); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for i, holder := range holders {
				r.Remove(holder, i) // those that have left are gone already
			}
			if r.taken != 0 || len(r.holders) != 0 {
				t.Errorf("%d places and %d holders are left when all have gone", r.taken, len(r.holders))
			}
		})
	}
}
