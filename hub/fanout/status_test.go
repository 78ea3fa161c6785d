// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

func outcomeOf(name string, is v1alpha1.WorkStatusType, reason string, pending bool) clusterOutcome {
	return clusterOutcome{ClusterResult: v1alpha1.ClusterResult{Name: name, Type: is, Reason: reason}, pending: pending}
}

func TestSummarizeNamesFailures(t *testing.T) {
	const completed, failed, processing = v1alpha1.WorkCompleted, v1alpha1.WorkFailed, v1alpha1.WorkProcessing
	many := make([]clusterOutcome, 0, 12)
	for i := range 12 {
		many = append(many, outcomeOf(fmt.Sprintf("c%02d", i), failed, "no", false))
	}
	cases := map[string]struct {
		reason   string
		outcomes []clusterOutcome
		kind     v1alpha1.WorkStatusType
		text     string
	}{
		"all have it": {
			reason:   "nothing is to be said",
			outcomes: []clusterOutcome{outcomeOf("a", completed, "", false), outcomeOf("b", completed, "2 items are left out", false)}, kind: completed,
		},
		"one has failed": {
			reason:   "it is named",
			outcomes: []clusterOutcome{outcomeOf("a", completed, "", false), outcomeOf("b", failed, "no", false)}, kind: failed, text: "b: no",
		},
		"one is away": {
			reason:   "nothing is final before all have answered, and what failed comes first",
			outcomes: []clusterOutcome{outcomeOf("a", processing, "not connected", true), outcomeOf("b", failed, "no", false)},
			kind:     processing, text: "b: no; a: not connected",
		},
		"one has no answer": {
			reason: "it is named", outcomes: []clusterOutcome{outcomeOf("a", "", "", true)}, kind: processing, text: "a: not answered yet",
		},
		"mode Periodic": {
			reason: "as the works themselves", kind: processing,
			outcomes: []clusterOutcome{outcomeOf("a", completed, "", false), outcomeOf("b", processing, "2 items are left out", false)},
		},
		"mode Periodic, and a failure": {
			reason:   "a failure is not hidden",
			outcomes: []clusterOutcome{outcomeOf("a", failed, "no", false), outcomeOf("b", processing, "", false)}, kind: failed, text: "a: no",
		},
		"nobody": {
			reason: "it is said, for it may be a mistake", kind: completed, text: "no cluster is selected",
		},
		"too many to name": {
			reason: "the reason stays short", outcomes: many, kind: failed,
			text: "c00: no; c01: no; c02: no; c03: no; c04: no; c05: no; c06: no; c07: no; c08: no; c09: no; and 2 more",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := summarize(tc.outcomes, 3)
			if s.kind != tc.kind || s.reason != tc.text || s.generation != 3 || len(s.clusters) != len(tc.outcomes) {
				t.Errorf("%s: %s %q of generation %d, want %s %q", tc.reason, s.kind, s.reason, s.generation, tc.kind, tc.text)
			}
		})
	}
}

func TestNewOutcomeComparesGeneration(t *testing.T) {
	cases := map[string]struct {
		reason     string
		status     v1alpha1.WorkStatus
		want       clusterOutcome
		generation int64
	}{
		"none":             {reason: "the work is new", want: outcomeOf("c", "", "", true)},
		"of the cluster":   {reason: "it counts", status: v1alpha1.WorkStatus{Type: "Completed", ObservedGeneration: 2}, want: outcomeOf("c", "Completed", "", false)},
		"periodic":         {reason: "it is shown as Processing", status: v1alpha1.WorkStatus{Type: "Processing", ObservedGeneration: 2}, want: outcomeOf("c", "Processing", "", false)},
		"to another":       {reason: "it was edited", status: v1alpha1.WorkStatus{Type: "Completed", Reason: "r", ObservedGeneration: 1}, want: outcomeOf("c", "", "", true)},
		"failure before":   {reason: "it may go well now", status: v1alpha1.WorkStatus{Type: "Failed", Reason: "r", ObservedGeneration: 1}, want: outcomeOf("c", "", "", true)},
		"of the hub":       {reason: "the cluster is not asked", status: v1alpha1.WorkStatus{Type: "Failed", Reason: "forbidden"}, want: outcomeOf("c", "Failed", "forbidden", false)},
		"that it is away":  {reason: "it answers when it is back", status: v1alpha1.WorkStatus{Type: "Processing", Reason: "away"}, want: outcomeOf("c", "Processing", "away", true)},
		"an empty failure": {reason: "it has failed", status: v1alpha1.WorkStatus{Type: "Failed", ObservedGeneration: 2}, want: outcomeOf("c", "Failed", "", false)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &v1alpha1.Work{Status: tc.status}
			w.Namespace, w.Generation = "c", 2
			if got := newOutcome(w); got != tc.want {
				t.Errorf("%s: %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestReasonsAreLimited(t *testing.T) {
	var all []clusterOutcome
	for i := range 5000 {
		all = append(all, outcomeOf(fmt.Sprintf("c%04d", i), v1alpha1.WorkFailed, strings.Repeat("ä", maxReason), false))
	}
	s := summarize(all, 1)
	sum := 0
	for _, r := range s.clusters {
		sum += len(r.Reason)
		if len(r.Reason) > maxReason || !utf8.ValidString(r.Reason) {
			t.Fatalf("the reason of %s has %d bytes, or half a character", r.Name, len(r.Reason))
		}
	}
	if sum > maxReasons || len(s.clusters) != len(all) {
		t.Errorf("reasons of %d clusters have %d bytes, want all, and %d at most", len(s.clusters), sum, maxReasons)
	}
	if len(s.reason) > (maxNamed+1)*(maxReason+10) {
		t.Errorf("the reason has %d bytes", len(s.reason))
	}
}

func TestReasonOfClusterDoesNotShortenOthers(t *testing.T) {
	var all []clusterOutcome
	for i := range 2000 {
		all = append(all, outcomeOf(fmt.Sprintf("c%04d", i), v1alpha1.WorkFailed, strings.Repeat("x", maxReason), false))
	}
	before := summarize(all, 1).clusters
	all[0].Reason = "short"
	after := summarize(all, 1).clusters
	if diff := cmp.Diff(before[1:], after[1:]); diff != "" {
		t.Errorf("they would pay for a change of another (-before +after):\n%s", diff)
	}
}

func TestTruncateKeepsCharacters(t *testing.T) {
	for _, tc := range []struct {
		most       int
		text, want string
	}{
		{most: 5, text: "short", want: "short"},
		{most: 5, text: "longer", want: "lo..."},
		{most: 6, text: "ääää", want: "ä..."},
		{most: 2, text: "longer", want: ""},
	} {
		if diff := cmp.Diff(tc.want, truncate(tc.text, tc.most)); diff != "" {
			t.Errorf("%q in %d bytes (-want +got):\n%s", tc.text, tc.most, diff)
		}
	}
}
