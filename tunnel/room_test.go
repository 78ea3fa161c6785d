// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARoomMakesPlaceForEveryNewcomer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		places  int
		perHost int
		come    string // hosts, in order
		want    []int  // who has to leave, in order, by the order of coming
	}{
		"room for all":            {"nobody has to leave", 4, 2, "a a b c", nil},
		"a host beyond its share": {"it evicts its own oldest", 9, 2, "a b a a a", []int{0, 2}},
		"a full room":             {"the oldest of the host with the most leaves", 4, 3, "b a a a c d", []int{1, 2}},
		"a share before the room": {"a host in its share does not cost others theirs", 3, 2, "a b b b", []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(tc.places, tc.perHost)
			var conns []*gatedConn
			var left []int
			for host := range strings.FieldsSeq(tc.come) {
				conns = append(conns, &gatedConn{host: host})
				if oldest := r.add(conns[len(conns)-1]); oldest != nil {
					left = append(left, slices.Index(conns, oldest))
					r.remove(oldest)
				}
			}
			if diff := cmp.Diff(tc.want, left); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, c := range conns {
				r.remove(c) // those that have left are gone already
			}
			if r.taken != 0 || len(r.hosts) != 0 {
				t.Errorf("%d places and %d hosts are left when all have gone", r.taken, len(r.hosts))
			}
		})
	}
}
