// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
)

// The webhook may be registered anew, after an outage: nobody is an author then. Works that
// were made anew would do again what they did.
func TestNewRegistrationDoesNotRecreateWorks(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		q := newQueue()
		if err := r.kind(kindWorkSet).start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		r.settle(kindWorkSet)
		before := r.work(p, "store-1")
		for _, registration := range []string{"", "another"} {
			r.authors.Set(registration)
			if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" {
				t.Errorf("parents that are looked at (-want +got):\n%s", diff)
			}
			r.settle(kindWorkSet)
			if got := r.set(); len(r.works()) != 2 || got.Status != v1alpha1.WorkFailed || !strings.Contains(got.Reason, "registered") {
				t.Errorf("under %q: works in %v, status %+v", registration, r.works(), got)
			}
		}
		s := newSet()
		r.edit(s, func() { s.Annotations = bob.Annotations(requester.MCM, "another") })
		r.settle(kindWorkSet)
		after := r.work(p, "store-1")
		if after.UID != before.UID || after.Generation != before.Generation {
			t.Errorf("work %s in generation %d was made anew or changed: %s, %d", before.UID, before.Generation, after.UID, after.Generation)
		}
		if by, err := requester.FromObject(after, requester.MCM, "another"); err != nil || by.User != "bob" {
			t.Errorf("the work is done for %+v: %v", by, err)
		}
	})
}
