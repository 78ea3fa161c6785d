// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
)

func integer(name string, value int64) workv1.FeedbackValue {
	return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: &value}}
}

// withFeedback is a report on one manifest with values.
func withFeedback(values ...workv1.FeedbackValue) wire.WorkStatus {
	s := applied(1, metav1.ConditionTrue)
	synced := s.Conditions[0]
	synced.Type, synced.Reason = "StatusFeedbackSynced", "StatusFeedbackSynced"
	s.Manifests[0].Conditions = append(s.Manifests[0].Conditions, synced)
	s.Manifests[0].StatusFeedbacks.Values = values
	return s
}

func (r *rig) manifests(t *testing.T, w client.Object) []workv1.ManifestCondition {
	t.Helper()
	got := &workv1.ManifestWork{}
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(w), got); err != nil {
		t.Fatal(err)
	}
	return got.Status.ResourceStatus.Manifests
}

func TestFeedbackIntegersKeepTheirPrecision(t *testing.T) {
	const beyondFloats = 1<<53 + 1
	tests := map[string]struct {
		reason string
		values []int64
	}{
		"beyond floats":           {reason: "as a float64 it is 2^53", values: []int64{beyondFloats}},
		"the greatest":            {reason: "as a float64 it is no int64: the API server takes no such status", values: []int64{math.MaxInt64}},
		"the least":               {reason: "it is one", values: []int64{math.MinInt64}},
		"a change beyond floats":  {reason: "as float64 both are equal", values: []int64{beyondFloats - 1, beyondFloats}},
		"a change among smallest": {reason: "as before", values: []int64{0, -1, 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k := manifestWorks(testHash, false)
			w := k.newWork(managed, "w", k.addFinalizer)
			r := newRig(t, clusterNamed(managed), w)
			for _, value := range tc.values {
				r.report(t, managed, "manifestwork/c1/w", "uid-w", withFeedback(integer("big", value)))
				got := r.manifests(t, w)
				if len(got) != 1 {
					t.Fatalf("%s: %d manifests", tc.reason, len(got))
				}
				want := []workv1.FeedbackValue{integer("big", value)}
				if diff := cmp.Diff(want, got[0].StatusFeedbacks.Values); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}
