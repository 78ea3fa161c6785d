// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

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

func TestDriftPolicyFollowsStrategy(t *testing.T) {
	was := func() *ObservedObject {
		s := observedAt("u", "10", 1)
		s.allFields, s.allWrites, s.Owners, s.specHash = fieldsHash{1}, fieldsHash{1}, []types.UID{"anchor", "other"}, "mark"
		return s
	}
	type change func(*ObservedObject)
	status := func(s *ObservedObject) { s.allWrites = fieldsHash{2} }
	edits := func(s *ObservedObject) { s.allFields, s.allWrites = fieldsHash{2}, fieldsHash{2} }
	fields := func(s *ObservedObject) { edits(s); s.ownFields = fieldsHash{2} }
	owners := func(s *ObservedObject) { edits(s); s.Owners = []types.UID{"anchor"} }
	mark := func(s *ObservedObject) { edits(s); s.specHash = "" }
	again := func(*ObservedObject) {}
	tests := map[string]struct {
		reason string
		guard  DriftPolicy
		change change
		stray  bool
	}{
		"applied, our fields":        {reason: "somebody took one", guard: DriftByFields, change: fields, stray: true},
		"applied, others' fields":    {reason: "they are not ours", guard: DriftByFields, change: edits},
		"updated, anything":          {reason: "the executor has to look", guard: DriftByEdits, change: edits, stray: true},
		"updated, the status":        {reason: "it is nobody's to write here", guard: DriftByEdits, change: status},
		"updated, the same again":    {reason: "two agents overlapped, and the other one wrote what it wanted", guard: DriftByEdits, change: again, stray: true},
		"applied, the same again":    {reason: "of applies it is known whose a field is, and not what is in it", guard: DriftByFields, change: again},
		"made once, somebody's edit": {reason: "it stays as the spoke has it", guard: DriftByOwnership, change: fields},
		"made once, the owner":       {reason: "the reference to the anchor is maintained", guard: DriftByOwnership, change: owners, stray: true},
		"marked, the mark":           {reason: "without it the manifest is applied again", guard: DriftByOwnership, change: mark, stray: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newFixture()
			s.BeginWrite(s.id, "w", time.Now())
			s.recordApply(s.id, "w", body, was(), tc.guard)
			s.requeued = nil
			now := was()
			now.ResourceVersion = "12"
			tc.change(now)
			s.handleEvent(s.id, now, false, time.Time{})
			if got := len(s.requeued) > 0; got != tc.stray {
				t.Errorf("%s: repairs %v", tc.reason, s.requeued)
			}
		})
	}
}

func TestDriftRequeuesOwnersOfOtherFields(t *testing.T) {
	s := newFixture()
	s.AddClaim(s.target(), "x", "anchor-x")
	s.setDesired(s.id, "w", DesiredState{ContentHash: body, ManifestHash: body, Manager: "work-agent", IsOwner: true})
	s.setDesired(s.id, "x", DesiredState{ContentHash: [32]byte{2}, ManifestHash: [32]byte{2}, Manager: "work-agent-x", IsOwner: true})
	s.BeginWrite(s.id, "x", time.Now())
	s.recordApply(s.id, "x", [32]byte{2}, observedAt("u", "11", 3), DriftByFields)
	s.requeued = nil
	s.handleEvent(s.id, observedAt("u", "12", 4), false, time.Time{})
	slices.Sort(s.requeued)
	if diff := cmp.Diff([]string{"w", "x"}, s.requeued); diff != "" {
		t.Errorf("repairs (-want +got):\n%s", diff)
	}
	if got := s.ConflictingWorks(s.id, "w"); got != nil {
		t.Errorf("works with managers of their own are rivals: %v", got)
	}
	// The first of them repairs; that is no answer for the other one's fields.
	s.BeginWrite(s.id, "w", time.Now())
	s.recordApply(s.id, "w", body, observedAt("u", "13", 5), DriftByFields)
	if what, _ := s.NextAction(s.id, "x", [32]byte{2}, time.Now()); what != ActionApply {
		t.Error("the other one's fields are forgotten")
	}
}

func TestConflictingWorksWantOtherValues(t *testing.T) {
	want := func(desire byte) DesiredState {
		return DesiredState{ContentHash: [32]byte{desire, 1}, ManifestHash: [32]byte{desire}, Manager: "work-agent", IsOwner: true}
	}
	reads, empty := want(2), DesiredState{IsOwner: true}
	reads.IsPassive = true
	tests := map[string]struct {
		reason string
		other  DesiredState
		rivals []string
	}{
		"other values":   {reason: "the last one wins, and both say so", other: want(2), rivals: []string{"x"}},
		"the same":       {reason: "they agree", other: want(1)},
		"one only reads": {reason: "it wants nothing", other: reads},
		"not known yet":  {reason: "nothing is said before it is", other: empty},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newFixture()
			s.AddClaim(s.target(), "x", "anchor-x")
			s.setDesired(s.id, "w", want(1))
			s.setDesired(s.id, "x", tc.other)
			if diff := cmp.Diff(tc.rivals, s.ConflictingWorks(s.id, "w")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSupersededWorkDoesNotWriteAgain(t *testing.T) {
	s := newFixture()
	s.AddClaim(s.target(), "x", "anchor-x")
	other := [32]byte{7}
	s.setDesired(s.id, "x", DesiredState{ContentHash: other, ManifestHash: other, Manager: "work-agent"})
	if what, _ := s.NextAction(s.id, "x", other, time.Now()); what != ActionApply {
		t.Fatal("a work that wrote nothing has nothing to do")
	}
	s.markSuperseded(s.id, "x", other)
	if what, _ := s.NextAction(s.id, "x", other, time.Now()); what != ActionNone {
		t.Error("it writes what it wrote before the last one did")
	}
	if what, _ := s.NextAction(s.id, "x", [32]byte{8}, time.Now()); what != ActionApply {
		t.Error("what it wants now is not written")
	}
}

func TestReadersReadRequestedContent(t *testing.T) {
	s := newFixture()
	r := &Reader{
		Generation: 3,
		Feedback: feedback.Compile([]workv1.FeedbackRule{{
			Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "state", Path: ".data.state"}},
		}}, feedback.Options{}),
		Rules: conditionrules.NewCompiler().Compile([]workv1.ConditionRule{{
			Condition: "Done", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{`object.data.state == "done"`},
		}}),
	}
	s.setDesired(s.id, "w", DesiredState{ContentHash: body, IsOwner: true, Reader: r})
	if len(s.scopes) != 1 || s.followed != 1 {
		t.Fatalf("%d scopes, %d watches: want the one with content", len(s.scopes), s.followed)
	}
	if !s.NeedsRead(s.id) {
		t.Error("nobody has to read what was never read")
	}
	obj := func(state string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"state": state}}}
	}
	see := func(version, state string) bool {
		s.statusRequeued = nil
		s.handleEvent(s.id, observedAt("u", version, 1), false, time.Time{}, ReadAll(s.Readers(s.id), obj(state))...)
		return len(s.statusRequeued) > 0
	}
	if !see("11", "new") || s.NeedsRead(s.id) {
		t.Error("the first reading is not told")
	}
	if see("12", "new") {
		t.Error("a reading that says the same is told")
	}
	if !see("13", "done") {
		t.Error("a change is not told")
	}
	got := s.ReadingOf(s.id, "w")
	want := []metav1.Condition{{
		Type: "Done", Status: metav1.ConditionTrue, Reason: "ConditionRuleEvaluated", Message: "Manifest is Done", ObservedGeneration: 3,
	}}
	if diff := cmp.Diff(want, got.Conditions); diff != "" || *got.Values[0].Value.String != "done" {
		t.Errorf("reading (-want +got):\n%s\n%+v", diff, got.Values)
	}
	s.setDesired(s.id, "w", DesiredState{ContentHash: body, IsOwner: true})
	if s.ReadingOf(s.id, "w") != nil || s.followed != 1 {
		t.Error("without rules something is still read")
	}
}
