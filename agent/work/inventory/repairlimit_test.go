// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestContentionIsReportedUntilRepairHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture()
		for range freeRepairs + 1 {
			if s.IsDamped(s.id, time.Now()) {
				t.Fatal("repairs at once are taken for a fight")
			}
			s.handleEvent(s.id, observedAt("u", "11", 2), false, time.Time{})
			s.BeginWrite(s.id, "w", time.Now())
			s.recordApply(s.id, "w", body, observedAt("u", "10", 1), DriftByFields)
			s.live().ResourceVersion = "10"
		}
		if !s.IsDamped(s.id, time.Now()) {
			t.Fatal("nobody looks who changes it")
		}
		s.statusRequeued = nil
		s.add(s.SetContention(s.id, "kubectl"))
		s.add(s.SetContention(s.id, "kubectl"))
		if len(s.statusRequeued) != 1 || s.ContendedBy(s.id) != "kubectl" {
			t.Errorf("told %d times; said: %q", len(s.statusRequeued), s.ContendedBy(s.id))
		}
		time.Sleep(repairWindow - time.Second)
		if _, left := s.Contention(s.id, time.Now()); left != time.Second {
			t.Errorf("looked at again after %s", left)
		}
		time.Sleep(time.Second)
		if got := s.ContendedBy(s.id); got != "" {
			t.Errorf("it has stayed repaired, and %q is said", got)
		}
	})
}

// live is the object as it was last seen.
func (s *fixture) live() *ObservedObject { return s.objects[s.id].live }

func TestRepeatedRepairsAreSlowedDown(t *testing.T) {
	var p repairLimit
	now := time.Now()
	for range freeRepairs {
		if w := p.delay(now); w != 0 {
			t.Fatalf("a free repair waits %s", w)
		}
		p.recordRepair(now)
	}
	last := time.Duration(0)
	for range 12 {
		w := p.delay(now)
		if w <= 0 || w < last || w > maxRepairDelay {
			t.Fatalf("after %s comes %s", last, w)
		}
		last = w
		now = now.Add(w)
		p.recordRepair(now)
	}
	if last != maxRepairDelay {
		t.Errorf("the longest wait is %s", last)
	}
	if w := p.delay(now.Add(repairWindow + time.Second)); w != 0 {
		t.Errorf("after a quiet time a repair waits %s", w)
	}
}
