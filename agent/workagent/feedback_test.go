// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// withFeedback is a report on one manifest with values.
func withFeedback(values map[string]int64) wire.WorkStatus {
	s := applied(1, metav1.ConditionTrue)
	m := workv1.ManifestCondition{Conditions: s.Conditions}
	for _, name := range []string{"a", "b"} {
		if value, ok := values[name]; ok {
			m.StatusFeedbacks.Values = append(m.StatusFeedbacks.Values, workv1.FeedbackValue{
				Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: &value},
			})
		}
	}
	s.Manifests = []workv1.ManifestCondition{m}
	return s
}

// values are those of the one manifest.
func (r *rig) values() map[string]int64 {
	out := map[string]int64{}
	for _, m := range r.server.stored().Status.ResourceStatus.Manifests {
		for _, v := range m.StatusFeedbacks.Values {
			out[v.Name] = *v.Value.Integer
		}
	}
	return out
}

func TestFeedbackIntegersKeepTheirPrecision(t *testing.T) {
	r := newRig(t, "w")
	r.acceptWork(t)
	for _, want := range []map[string]int64{{"a": 1 << 53, "b": math.MaxInt64}, {"a": 1<<53 + 1, "b": math.MinInt64}} {
		r.report(t, withFeedback(want))
		r.run(t)
		if diff := cmp.Diff(want, r.values()); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	}
}
