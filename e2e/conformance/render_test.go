// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

func TestAStatusIsRenderedInItsOrder(t *testing.T) {
	got := render(workv1.ManifestWorkStatus{
		Conditions: []metav1.Condition{{Type: "Applied", Status: "True", Reason: "R", Message: "m", ObservedGeneration: 2}},
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
			ResourceMeta:    workv1.ManifestResourceMeta{Ordinal: 1, Group: "g", Version: "v1", Kind: "K", Name: "n"},
			Conditions:      []metav1.Condition{{Type: "Available", Status: "False", Reason: "R"}},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "v", Value: workv1.FieldValue{Type: workv1.Integer, Integer: new(int64(3))}}}},
		}}},
	})
	want := []string{"work", "Applied=True R @2: m", "1 g/v1 K - -/n", "Available=False R", "v = Integer 3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestShortFormsAreWrittenOut(t *testing.T) {
	want := []string{
		"work", "Applied=True AppliedManifestWorkComplete @12: Apply manifest work complete", "Available=True ResourcesAvailable @12: All resources are available",
		"?StatusFeedbackSynced=True NoStatusFeedbackSynced", "Available=False ResourceNotAvailable: Resource is not available",
	}
	if diff := cmp.Diff(want, expand("\n\twork\n\n+work@12\n  ?+silent\n+missing")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestAStatusIsHeldAgainstWhatIsWanted(t *testing.T) {
	for label, tc := range map[string]struct {
		reason    string
		want, got []string
		fails     bool
	}{
		"the same":          {reason: "line by line", want: []string{"a", "b"}, got: []string{"a", "b"}},
		"any text":          {reason: "a star stands for it", want: []string{"a: *c"}, got: []string{"a: b (d"}, fails: true},
		"some text":         {reason: "a star stands for any text", want: []string{"a: *c*"}, got: []string{"a: b (c)"}},
		"another order":     {reason: "order counts", want: []string{"a", "b"}, got: []string{"b", "a"}, fails: true},
		"too much":          {reason: "what is not wanted is wrong", want: []string{"a"}, got: []string{"a", "b"}, fails: true},
		"too little":        {reason: "what is wanted must be there", want: []string{"a", "b"}, got: []string{"a"}, fails: true},
		"optional and not":  {reason: "it need not be there", want: []string{"a", "?b", "c"}, got: []string{"a", "c"}},
		"optional and so":   {reason: "it may be there", want: []string{"a", "?b", "c"}, got: []string{"a", "b", "c"}},
		"optional at last":  {reason: "it need not be there", want: []string{"a", "?b"}, got: []string{"a"}},
		"optional but else": {reason: "something else may not", want: []string{"a", "?b"}, got: []string{"a", "c"}, fails: true},
	} {
		t.Run(label, func(t *testing.T) {
			if err := differ(tc.want, tc.got); (err != nil) != tc.fails {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
