// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import "testing"

func TestSlotsLimitTotalAndHolder(t *testing.T) {
	s := NewSlots(5, 3)
	for _, step := range []struct {
		reason, holder string
		n              int64
		want           bool
	}{
		{"within both bounds", "a", 3, true},
		{"beyond the holder's bound", "a", 1, false},
		{"another holder has its own", "b", 2, true},
		{"beyond the bound of all", "c", 1, false},
	} {
		if got := s.Take(step.holder, step.n); got != step.want {
			t.Errorf("%s: Take(%q, %d): got %t", step.reason, step.holder, step.n, got)
		}
	}
	s.Give("a", 3)
	s.Give("b", 2)
	if len(s.by) != 0 || s.used != 0 {
		t.Errorf("all was given back: %d are in use, holders are %v", s.used, s.by)
	}
	if s.Each() != 3 {
		t.Errorf("Each: got %d, want 3", s.Each())
	}
}

func TestNilSlotsHasNoBounds(t *testing.T) {
	var s *Slots
	if !s.Take("a", 1<<40) {
		t.Error("nothing bounds it, and it was refused")
	}
	s.Give("a", 1<<40)
}

func TestAcquireAllAcquiresAllOrNone(t *testing.T) {
	users, clusters := NewSlots(10, 2), NewSlots(10, 3)
	enter := func(user string) (leave func(), full *Share) {
		return TakeAll(Share{users, user, "of a user"}, Share{nil, user, "of no bounds"}, Share{clusters, "c1", "of a cluster"})
	}
	var leaves []func()
	for _, step := range []struct{ reason, user, full string }{
		{"within all bounds", "a", ""},
		{"the last of the user", "a", ""},
		{"beyond the user's bound", "a", "of a user"},
		{"another user has its own", "b", ""},
		{"beyond the cluster's bound", "b", "of a cluster"},
	} {
		leave, full := enter(step.user)
		switch {
		case full == nil && step.full == "":
			leaves = append(leaves, leave)
		case full == nil || full.What != step.full || leave != nil:
			t.Fatalf("%s: got %+v, want none %q", step.reason, full, step.full)
		}
	}
	if users.used != 3 || clusters.used != 3 {
		t.Errorf("%d and %d are in use, want what the three have that got all", users.used, clusters.used)
	}
	for _, leave := range leaves {
		leave()
		leave()
	}
	if users.used != 0 || clusters.used != 0 {
		t.Errorf("all left, twice: %d and %d are in use", users.used, clusters.used)
	}
}
