// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/feedback"
)

func TestEachStrategyGuardsWhatItWrote(t *testing.T) {
	was := func() *sighting {
		s := seen("u", "10", 1)
		s.edits, s.writes, s.owners, s.config = fieldsHash{1}, fieldsHash{1}, []types.UID{"anchor", "other"}, "mark"
		return s
	}
	type change func(*sighting)
	status := func(s *sighting) { s.writes = fieldsHash{2} }
	edits := func(s *sighting) { s.edits, s.writes = fieldsHash{2}, fieldsHash{2} }
	fields := func(s *sighting) { edits(s); s.fields = fieldsHash{2} }
	owners := func(s *sighting) { edits(s); s.owners = []types.UID{"anchor"} }
	mark := func(s *sighting) { edits(s); s.config = "" }
	again := func(*sighting) {}
	tests := map[string]struct {
		reason string
		guard  guard
		change change
		stray  bool
	}{
		"applied, our fields":        {reason: "somebody took one", guard: guardFields, change: fields, stray: true},
		"applied, others' fields":    {reason: "they are not ours", guard: guardFields, change: edits},
		"updated, anything":          {reason: "the executor has to look", guard: guardEdits, change: edits, stray: true},
		"updated, the status":        {reason: "it is nobody's to write here", guard: guardEdits, change: status},
		"updated, the same again":    {reason: "two agents overlapped, and the other one wrote what it wanted", guard: guardEdits, change: again, stray: true},
		"applied, the same again":    {reason: "of applies it is known whose a field is, and not what is in it", guard: guardFields, change: again},
		"made once, somebody's edit": {reason: "it stays as the spoke has it", guard: guardOwnership, change: fields},
		"made once, the owner":       {reason: "the reference to the anchor is maintained", guard: guardOwnership, change: owners, stray: true},
		"marked, the mark":           {reason: "without it the manifest is applied again", guard: guardOwnership, change: mark, stray: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.begin(s.id, "w", time.Now())
			s.finish(s.id, "w", body, was(), tc.guard)
			s.repairs = nil
			now := was()
			now.version = "12"
			tc.change(now)
			s.observe(s.id, now, false, time.Time{})
			if got := len(s.repairs) > 0; got != tc.stray {
				t.Errorf("%s: repairs %v", tc.reason, s.repairs)
			}
		})
	}
}

func TestWhoeverOwnsOtherFieldsRepairsThemToo(t *testing.T) {
	s := newScene()
	s.claim(s.target(), "x", "anchor-x")
	s.intend(s.id, "w", intent{content: body, desire: body, manager: "work-agent", owns: true})
	s.intend(s.id, "x", intent{content: [32]byte{2}, desire: [32]byte{2}, manager: "work-agent-x", owns: true})
	s.begin(s.id, "x", time.Now())
	s.finish(s.id, "x", [32]byte{2}, seen("u", "11", 3), guardFields)
	s.repairs = nil
	s.observe(s.id, seen("u", "12", 4), false, time.Time{})
	slices.Sort(s.repairs)
	if diff := cmp.Diff([]string{"w", "x"}, s.repairs); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	if got := s.rivals(s.id, "w"); got != nil {
		t.Errorf("works with managers of their own are rivals: %v", got)
	}
	// The first of them repairs; that is no answer for the other one's fields.
	s.begin(s.id, "w", time.Now())
	s.finish(s.id, "w", body, seen("u", "13", 5), guardFields)
	if what, _ := s.due(s.id, "x", [32]byte{2}, time.Now()); what != needApply {
		t.Error("the other one's fields are forgotten")
	}
}

func TestRivalsAreThoseWhoWantOtherValues(t *testing.T) {
	want := func(desire byte) intent {
		return intent{content: [32]byte{desire, 1}, desire: [32]byte{desire}, manager: "work-agent", owns: true}
	}
	reads, empty := want(2), intent{owns: true}
	reads.passive = true
	tests := map[string]struct {
		reason string
		other  intent
		rivals []string
	}{
		"other values":   {reason: "the last one wins, and both say so", other: want(2), rivals: []string{"x"}},
		"the same":       {reason: "they agree", other: want(1)},
		"one only reads": {reason: "it wants nothing", other: reads},
		"not known yet":  {reason: "nothing is said before it is", other: empty},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.claim(s.target(), "x", "anchor-x")
			s.intend(s.id, "w", want(1))
			s.intend(s.id, "x", tc.other)
			if diff := cmp.Diff(tc.rivals, s.rivals(s.id, "w")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWhatYieldedDoesNotWriteAgain(t *testing.T) {
	s := newScene()
	s.claim(s.target(), "x", "anchor-x")
	other := [32]byte{7}
	s.intend(s.id, "x", intent{content: other, desire: other, manager: "work-agent"})
	if what, _ := s.due(s.id, "x", other, time.Now()); what != needApply {
		t.Fatal("a work that wrote nothing has nothing to do")
	}
	s.yield(s.id, "x", other)
	if what, _ := s.due(s.id, "x", other, time.Now()); what != needNothing {
		t.Error("it writes what it wrote before the last one did")
	}
	if what, _ := s.due(s.id, "x", [32]byte{8}, time.Now()); what != needApply {
		t.Error("what it wants now is not written")
	}
}

func TestReadersReadWhatTheyAskFor(t *testing.T) {
	s := newScene()
	r := &reader{
		generation: 3,
		feedback: feedback.Compile([]workv1.FeedbackRule{{
			Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "state", Path: ".data.state"}},
		}}, feedback.Options{}),
		rules: conditionrules.NewCompiler().Compile([]workv1.ConditionRule{{
			Condition: "Done", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{`object.data.state == "done"`},
		}}),
	}
	s.intend(s.id, "w", intent{content: body, owns: true, reader: r})
	if len(s.scopes) != 1 || s.followed != 1 {
		t.Fatalf("%d scopes, %d watches: want the one with content", len(s.scopes), s.followed)
	}
	if !s.unread(s.id) {
		t.Error("nobody has to read what was never read")
	}
	obj := func(state string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"state": state}}}
	}
	see := func(version, state string) bool {
		s.reports = nil
		s.observe(s.id, seen("u", version, 1), false, time.Time{}, readAll(s.readers(s.id), obj(state))...)
		return len(s.reports) > 0
	}
	if !see("11", "new") || s.unread(s.id) {
		t.Error("the first reading is not told")
	}
	if see("12", "new") {
		t.Error("a reading that says the same is told")
	}
	if !see("13", "done") {
		t.Error("a change is not told")
	}
	got := s.readingOf(s.id, "w")
	want := []metav1.Condition{{
		Type: "Done", Status: metav1.ConditionTrue, Reason: "ConditionRuleEvaluated", Message: "Manifest is Done", ObservedGeneration: 3,
	}}
	if diff := cmp.Diff(want, got.conditions); diff != "" || *got.values[0].Value.String != "done" {
		t.Errorf("reading (-want +got):\n%s\n%+v", diff, got.values)
	}
	s.intend(s.id, "w", intent{content: body, owns: true})
	if s.readingOf(s.id, "w") != nil || s.followed != 1 {
		t.Error("without rules something is still read")
	}
}
