// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import "testing"

func TestSlotsAreBoundedInAllAndForEach(t *testing.T) {
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

func TestWithoutSlotsThereAreNoBounds(t *testing.T) {
	var s *Slots
	if !s.Take("a", 1<<40) {
		t.Error("nothing bounds it, and it was refused")
	}
	s.Give("a", 1<<40)
}
