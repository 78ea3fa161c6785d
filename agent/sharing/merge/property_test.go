// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/testing/testscale"
)

// rounds is how many contents a property is tried on.
func rounds() int { return testscale.Of(250, 1000) }

func sameStates(a, b States) bool { return isEqual(a.Hub, b.Hub) && isEqual(a.Spoke, b.Spoke) }

func equalBases(m map[string]any) States { return States{Hub: m, Spoke: m} }

func merged(t *testing.T, s *Schema, base, now States, winner Side) Result {
	t.Helper()
	got, err := s.Merge(base, now, winner)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// laws are what holds of every merge, of whatever contents.
func laws(t *testing.T, s *Schema, base, now States, winner Side) {
	t.Helper()
	got := merged(t, s, base, now, winner)
	loser := map[Side]Side{Hub: Spoke, Spoke: Hub}[winner]
	swapped := merged(t, s, States{base.Spoke, base.Hub}, States{now.Spoke, now.Hub}, loser)
	if !sameStates(got.States, States{swapped.Spoke, swapped.Hub}) || !slices.Equal(got.Conflicts, swapped.Conflicts) {
		t.Errorf("the sides swapped: %v, not %v", swapped, got)
	}
	for name, base := range map[string]States{"from there": got.States, "once more": base} {
		again := merged(t, s, base, got.States, winner)
		if !sameStates(again.States, got.States) || name == "from there" && again.Conflicts != nil {
			t.Errorf("%s: %v, not %v", name, again, got)
		}
	}
	unsure, err := s.MergeUncertain(base, base, now, Hub, winner)
	if err != nil || !sameStates(unsure.States, got.States) || !slices.Equal(unsure.Conflicts, got.Conflicts) {
		t.Errorf("unsure of one base: %v, %v, not %v", unsure, err, got)
	}
	if pruned := s.Prune(got.Hub, got.Hub); !isEqual(pruned, got.Hub) {
		t.Errorf("pruned %v of nothing: %v", got.Hub, pruned)
	}
}

// lawsOfEqualBases hold besides if no definition drops anything.
func lawsOfEqualBases(t *testing.T, s *Schema, base map[string]any, now States, winner Side) {
	t.Helper()
	got := merged(t, s, equalBases(base), now, winner)
	if !isEqual(got.Hub, got.Spoke) {
		t.Errorf("the sides differ: %v", got)
	}
	applied, err := s.Apply(base, now.Hub, base)
	if err != nil || !isEqual(applied, now.Hub) {
		t.Errorf("the hub's changes of its base: %v, %v, not %v", applied, err, now.Hub)
	}
	paths, err := s.Differences(now.Hub, now.Spoke)
	if err != nil || (paths == nil) != isEqual(now.Hub, now.Spoke) {
		t.Errorf("differences %v, %v of %v", paths, err, now)
	}
}

func TestMergeLawsOfRandomContents(t *testing.T) {
	s := testSchema(t)
	for seed := range uint64(rounds()) {
		m := newMaker(seed, seed%2 == 0)
		base, other := m.content(), m.content()
		now := States{Hub: m.changeMap(contentShape, base, 9), Spoke: m.changeMap(contentShape, base, 9)}
		winner := []Side{Hub, Spoke}[m.IntN(2)]
		laws(t, s, equalBases(base), now, winner)
		lawsOfEqualBases(t, s, base, now, winner)
		laws(t, s, States{Hub: base, Spoke: other}, now, winner)
		laws(t, s, States{}, now, winner)
		if t.Failed() {
			t.Fatalf("seed %d, %s wins: base %v, other %v, now %v", seed, winner, base, other, now)
		}
	}
}

// expected is the opinion of a path that nobody disputes.
func expected(base, hub, spoke string) string {
	if hub == base {
		return spoke
	}
	return hub
}

func TestMergedPathHasChangedValue(t *testing.T) {
	s, disputed, free := testSchema(t), 0, 0
	for seed := range uint64(rounds()) {
		m := newMaker(seed, false)
		content := m.content()
		now := States{Hub: m.changeMap(contentShape, content, 9), Spoke: m.changeMap(contentShape, content, 9)}
		winner := []Side{Hub, Spoke}[m.IntN(2)]
		got := merged(t, s, equalBases(content), now, winner)
		base, hub, spoke, result := leaves(content), leaves(now.Hub), leaves(now.Spoke), leaves(got.Hub)
		won := leaves(map[Side]map[string]any{Hub: now.Hub, Spoke: now.Spoke}[winner])
		for path := range everyPath(base, hub, spoke, result) {
			if slices.Contains(got.Conflicts, path) {
				disputed++
				if result[path] != won[path] {
					t.Errorf("%s: %q, but the winner has %q", path, result[path], won[path])
				}
			}
			if covered(path, got.Conflicts) {
				continue
			}
			free++
			if want := expected(base[path], hub[path], spoke[path]); result[path] != want {
				t.Errorf("%s: %q, want %q: was %q, the hub has %q, the spoke %q", path, result[path], want, base[path], hub[path], spoke[path])
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d, %s wins: base %v, now %v, got %v", seed, winner, content, now, got)
		}
	}
	if disputed < rounds()/4 || free < 10*rounds() {
		t.Errorf("only %d conflicts and %d other paths were seen", disputed, free)
	}
}

// everyPath has the paths of all of them.
func everyPath(found ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, paths := range found {
		maps.Copy(all, paths)
	}
	return all
}

func TestConflictsWereChangedOnBothSides(t *testing.T) {
	s := testSchema(t)
	for seed := range uint64(rounds()) {
		m := newMaker(seed, true)
		base := m.content()
		now := States{Hub: m.changeMap(contentShape, base, 9), Spoke: m.changeMap(contentShape, base, 9)}
		got := merged(t, s, equalBases(base), now, Hub)
		hub, err := s.Differences(base, now.Hub)
		spoke, also := s.Differences(base, now.Spoke)
		if err != nil || also != nil {
			t.Fatal(err, also)
		}
		for _, conflict := range got.Conflicts {
			if !touched(conflict, hub) || !touched(conflict, spoke) {
				t.Errorf("seed %d: conflict %s, but the hub changed %v and the spoke %v", seed, conflict, hub, spoke)
			}
		}
	}
}

// touched reports whether a path was changed, or a part of it, or what it is a part of.
func touched(path string, changed []string) bool {
	return covered(path, changed) || slices.ContainsFunc(changed, func(c string) bool { return covered(c, []string{path}) })
}

// The spoke's definition lacks every field that begins with x.
func TestDroppedFieldsSurviveEveryMerge(t *testing.T) {
	s, survivors := testSchema(t), 0
	for seed := range uint64(rounds()) {
		m := newMaker(seed, false)
		base := States{Hub: m.content()}
		base.Spoke, _ = dropped(base.Hub).(map[string]any)
		now := States{Hub: m.changeMap(contentShape, base.Hub, 9)}
		now.Spoke, _ = dropped(m.changeMap(contentShape, base.Spoke, 9)).(map[string]any)
		got := merged(t, s, base, now, []Side{Hub, Spoke}[m.IntN(2)])
		was, hub, spoke := leaves(base.Hub), leaves(now.Hub), leaves(now.Spoke)
		hubNext, spokeNext := leaves(got.Hub), leaves(got.Spoke)
		for path, value := range hub {
			parent, ok := dropsAt(path)
			if !ok || value == "a map" || spoke[parent] != "a map" || covered(path, got.Conflicts) {
				continue // its parts have values of their own, or the spoke has no place for it
			}
			survivors++
			if hubNext[path] != value {
				t.Errorf("the hub's %s became %q, was %q", path, hubNext[path], value)
			}
			if added, ok := spokeNext[path]; ok != (was[path] != value) {
				t.Errorf("the spoke's %s becomes %q; the hub had %q and has %q", path, added, was[path], value)
			}
		}
		settled(t, s, got)
		if t.Failed() {
			t.Fatalf("seed %d: base %v, now %v, got %v", seed, base, now, got)
		}
	}
	if survivors < rounds()/2 {
		t.Errorf("only %d dropped fields were seen", survivors)
	}
}

// dropsAt returns the path of the map that has a field which is dropped, if it is
// one itself, not a part of one.
func dropsAt(path string) (parent string, ok bool) {
	i := strings.LastIndex(path, ".")
	return path[:max(i, 0)], i >= 0 && strings.HasPrefix(path[i:], ".x") && !strings.Contains(path[:i], ".x")
}

// settled: when the spoke has dropped what it does not know, there is nothing
// more to do.
func settled(t *testing.T, s *Schema, wrote Result) {
	t.Helper()
	got, _ := dropped(wrote.Spoke).(map[string]any)
	base := States{Hub: wrote.Hub, Spoke: s.Prune(wrote.Spoke, got)}
	if diff := cmp.Diff(got, base.Spoke); diff != "" {
		t.Errorf("pruned (-want +got):\n%s", diff)
	}
	now := States{Hub: wrote.Hub, Spoke: got}
	if again := merged(t, s, base, now, Hub); !sameStates(again.States, now) || again.Conflicts != nil {
		t.Errorf("after the write: %v, not %v", again, now)
	}
}
