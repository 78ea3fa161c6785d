// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/internal/workconvert"
)

// newInvalidError is what the API server says of the values of some fields.
func newInvalidError(fields ...string) error {
	err := apierrors.NewInvalid(schema.GroupKind{Kind: "ManifestWork"}, "w", nil)
	for _, field := range fields {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: "boom", Field: field})
	}
	return fmt.Errorf("patch status: %w", err)
}

func feedbackPath(manifest, value int) string {
	return fmt.Sprintf("status.resourceStatus.manifests[%d].statusFeedback.values[%d].fieldValue.integer", manifest, value)
}

// twoManifests have values a, b and c each; what feedback of the second says is given.
func twoManifests(synced metav1.Condition) Report {
	var r Report
	for i := range 2 {
		m := workv1.ManifestCondition{ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i)}}
		for _, name := range []string{"a", "b", "c"} {
			m.StatusFeedbacks.Values = append(m.StatusFeedbacks.Values, workv1.FeedbackValue{Name: name})
		}
		r.Status.Manifests = append(r.Status.Manifests, m)
	}
	if synced.Type != "" {
		r.Status.Manifests[1].Conditions = []metav1.Condition{synced}
	}
	return r
}

// shown is what a report says of feedback.
func shown(r Report) []string {
	var out []string
	for _, m := range r.Status.Manifests {
		words := []string{valuesOf(m)}
		for _, c := range m.Conditions {
			words = append(words, string(c.Status), c.Message)
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

// valuesOf are the names of the values of a manifest.
func valuesOf(m workv1.ManifestCondition) string {
	var names []string
	for _, v := range m.StatusFeedbacks.Values {
		names = append(names, v.Name)
	}
	return strings.Join(names, "")
}

func TestReduceOmitsRefusedParts(t *testing.T) {
	const because = "Sync status feedback failed with error "
	good := metav1.Condition{Type: workconvert.TypeFeedbackSynced, Status: metav1.ConditionTrue}
	bad := metav1.Condition{Type: workconvert.TypeFeedbackSynced, Status: metav1.ConditionFalse, Message: because + "x"}
	tests := map[string]struct {
		reason  string
		report  Report
		err     error
		want    []string
		leftOut bool
		nothing bool
	}{
		"one value": {
			reason: "it alone is left out", report: twoManifests(good), err: newInvalidError(feedbackPath(1, 1)),
			want: []string{"abc", "ac False " + because + `value "b" is refused by the hub: boom`},
		},
		"values of both": {
			reason: "each is said where it is missing", report: twoManifests(good), err: newInvalidError(feedbackPath(0, 0), feedbackPath(1, 0), feedbackPath(1, 2)),
			want: []string{
				"bc False " + because + `value "a" is refused by the hub: boom`,
				"b False " + because + `value "a" is refused by the hub: boom; value "c" is refused by the hub: boom`,
			},
		},
		"beside another failure": {
			reason: "that stays said", report: twoManifests(bad), err: newInvalidError(feedbackPath(1, 0)),
			want: []string{"abc", "bc False " + because + `x; value "a" is refused by the hub: boom`},
		},
		"a value that is not there":  {reason: "nothing would be less", report: twoManifests(good), err: newInvalidError(feedbackPath(1, 3)), leftOut: true},
		"a manifest that is not":     {reason: "as before", report: twoManifests(good), err: newInvalidError(feedbackPath(2, 0)), leftOut: true},
		"a number beyond all places": {reason: "as before", report: twoManifests(good), err: newInvalidError(strings.Replace(feedbackPath(0, 0), "[0]", "[99999999999999999999]", 1)), leftOut: true},
		"another field":              {reason: "nobody knows what would do", report: twoManifests(good), err: newInvalidError("status.resourceStatus.manifests[0].resourceMeta"), leftOut: true},
		"the size":                   {reason: "most of it is of manifests", report: twoManifests(good), err: apierrors.NewRequestEntityTooLargeError("boom"), leftOut: true},
		"a report of no manifests":   {reason: "nothing can be left out", err: newInvalidError("status.conditions"), nothing: true},
		"a conflict":                 {reason: "it is tried again as it is", report: twoManifests(good), err: apierrors.NewConflict(schema.GroupResource{}, "w", errors.New("boom")), nothing: true},
		"no error":                   {reason: "it is written", report: twoManifests(good), nothing: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := shown(tc.report)
			rest, ok := tc.report.Reduce(tc.err)
			if ok == tc.nothing || (rest.OmitReason != "") != tc.leftOut {
				t.Fatalf("%s: %t, left out %q", tc.reason, ok, rest.OmitReason)
			}
			if diff := cmp.Diff(before, shown(tc.report)); diff != "" {
				t.Errorf("%s: the report itself (-before +after):\n%s", tc.reason, diff)
			}
			if tc.want == nil {
				return
			}
			if diff := cmp.Diff(tc.want, shown(rest)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if rest, ok = rest.Reduce(tc.err); !ok || rest.OmitReason == "" {
				t.Errorf("%s: what is refused again leaves out %q", tc.reason, rest.OmitReason)
			}
			if _, ok = rest.Reduce(tc.err); ok {
				t.Errorf("%s: it does not end", tc.reason)
			}
		})
	}
}

func TestReduceBoundsMessages(t *testing.T) {
	long := twoManifests(metav1.Condition{Type: workconvert.TypeFeedbackSynced, Status: metav1.ConditionFalse, Message: strings.Repeat("m", maxConditionMessage)})
	err := apierrors.NewInvalid(schema.GroupKind{}, "w", nil)
	err.ErrStatus.Message = strings.Repeat("e", 1<<20)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: feedbackPath(1, 0), Message: strings.Repeat("v", 1<<20)}, {Field: feedbackPath(0, 0), Message: strings.Repeat("v", 1<<20)}}
	rest, _ := long.Reduce(err)
	for _, m := range rest.Status.Manifests {
		for _, c := range m.Conditions {
			if len(c.Message) > maxConditionMessage {
				t.Errorf("a message has %d bytes", len(c.Message))
			}
		}
	}
	if rest, _ = rest.Reduce(err); len(rest.OmitReason) != maxCause {
		t.Errorf("the cause has %d bytes", len(rest.OmitReason))
	}
}
