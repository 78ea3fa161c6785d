// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/api/wire"
)

// fakeReader is what the table would say of the objects by name.
type fakeReader map[string]*inventory.ObservedObject

func (v fakeReader) Get(id manifest.ObjectID) (*inventory.ObservedObject, bool, error) {
	if id.Name == "hidden" {
		return nil, false, errBoom
	}
	s, known := v[id.Name]
	return s, known, nil
}

func (fakeReader) ReadingOf(manifest.ObjectID, string) *inventory.Reading { return nil }

func (fakeReader) ConflictingWorks(manifest.ObjectID, string) []string { return nil }

// text renders conditions as "Type=Status/Reason@generation".
func text(conditions []metav1.Condition) []string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s@%d", c.Type, c.Status, c.Reason, c.ObservedGeneration))
	}
	return out
}

// readerWithReading is what rules of a generation said of every object, which is there.
type readerWithReading struct {
	fakeReader

	generation int64
	conditions []metav1.Condition
}

func (v fakeReader) HasEnded(manifest.ObjectID) bool { return false }

func (v fakeReader) ContendedBy(manifest.ObjectID) string { return "" }

func (r *readerWithReading) Get(manifest.ObjectID) (*inventory.ObservedObject, bool, error) {
	return &inventory.ObservedObject{UID: "u"}, true, nil
}

func (r *readerWithReading) ReadingOf(manifest.ObjectID, string) *inventory.Reading {
	return &inventory.Reading{Reader: &inventory.Reader{Generation: r.generation}, FeedbackCondition: metav1.Condition{Type: "StatusFeedbackSynced"}, Conditions: r.conditions}
}

func TestRulesAreReportedWithTheirGeneration(t *testing.T) {
	tests := map[string]struct {
		reason   string
		rules    int64
		observed int64
		want     []string
	}{
		"both of one version": {
			reason: "as asked", rules: 1, observed: 1,
			want: []string{"Applied=True/AppliedManifestComplete@1", "Available=True/ResourceAvailable@0", "StatusFeedbackSynced=/@0", "Kept=True/ConditionRuleEvaluated@1"},
		},
		"rules of a version that is being applied": {
			reason: "the hub would merge them into the version before, in another order", rules: 2, observed: 1,
			want: []string{"Applied=True/AppliedManifestComplete@1", "Available=True/ResourceAvailable@0", "StatusFeedbackSynced=/@0", "Kept=True/ConditionRuleEvaluated@1"},
		},
		"rules of a version that is no more": {
			reason: "they are pruned, and nothing is reported until the new ones have read", rules: 1, observed: 2,
			want: []string{"Applied=True/AppliedManifestComplete@2", "Available=True/ResourceAvailable@0", "StatusFeedbackSynced=/@0"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := stepOf(t, 0, "a", nil)
			o := outcome{object: &s.Target.ObjectID, hasRules: true}
			w := &work{observedGeneration: 1}
			rule := func(kind string) []metav1.Condition {
				return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "ConditionRuleEvaluated", ObservedGeneration: tt.rules}}
			}
			first := rule("Kept")
			first[0].ObservedGeneration = 1
			manifestWorkFormatter{}.setManifestConditions(w, &o, &readerWithReading{generation: 1, conditions: first}, metav1.Now())

			w.observedGeneration = tt.observed
			next := rule("Kept")
			if tt.rules > 1 {
				next = append(next, rule("New")...)
			}
			manifestWorkFormatter{}.setManifestConditions(w, &o, &readerWithReading{generation: tt.rules, conditions: next}, metav1.Now())
			if diff := cmp.Diff(tt.want, text(o.conditions)); diff != "" {
				t.Errorf("reason: %s\n-want +got\n%s", tt.reason, diff)
			}
		})
	}
}

func stepOf(t *testing.T, ordinal int, name string, err error) plan.Step {
	t.Helper()
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"Other","metadata":{"namespace":"n","name":%q}}`, name)
	resolve := func(context.Context, schema.GroupVersionKind) (plan.ResourceKind, error) {
		return plan.ResourceKind{Resource: "others", Namespaced: true}, nil
	}
	steps := plan.Build(t.Context(), []manifest.Manifest{manifest.Parse(ordinal, []byte(raw))}, resolve, nil)
	steps[0].Error = err
	return steps[0]
}

func TestStatusReportsConditions(t *testing.T) {
	healthyAs := func(s status.Status) *inventory.ObservedObject {
		return &inventory.ObservedObject{UID: "u", Health: inventory.Health{Status: s}}
	}
	tests := map[string]struct {
		reason   string
		name     string
		err      error
		view     fakeReader
		manifest []string
		work     []string
	}{
		"applied": {
			reason: "all is well", name: "a", view: fakeReader{"a": healthyAs(status.CurrentStatus)},
			manifest: []string{"Applied=True/AppliedManifestComplete@7", "Available=True/ResourceAvailable@0", "Healthy=True/Current@0"},
			work:     []string{"Applied=True/AppliedWorkComplete@3", "Available=True/ResourcesAvailable@3", "Healthy=True/Current@3"},
		},
		"starting": {
			reason: "there, and not yet well", name: "a", view: fakeReader{"a": healthyAs(status.InProgressStatus)},
			manifest: []string{"Applied=True/AppliedManifestComplete@7", "Available=True/ResourceAvailable@0", "Healthy=False/InProgress@0"},
			work:     []string{"Applied=True/AppliedWorkComplete@3", "Available=True/ResourcesAvailable@3", "Healthy=False/InProgress@3"},
		},
		"failed, and there": {
			reason: "a failed update leaves the object", name: "a", err: errBoom, view: fakeReader{"a": healthyAs(status.CurrentStatus)},
			manifest: []string{"Applied=False/AppliedManifestFailed@0", "Available=True/ResourceAvailable@0", "Healthy=True/Current@0"},
			work:     []string{"Applied=False/AppliedWorkFailed@3", "Available=True/ResourcesAvailable@3", "Healthy=True/Current@3"},
		},
		"failed, and absent": {
			reason: "nothing is there", name: "a", err: errBoom, view: fakeReader{},
			manifest: []string{"Applied=False/AppliedManifestFailed@0", "Available=False/ResourceNotAvailable@0", "Healthy=False/NotFound@0"},
			work:     []string{"Applied=False/AppliedWorkFailed@3", "Available=False/ResourcesNotAvailable@3", "Healthy=False/NotFound@3"},
		},
		"not to be seen": {
			reason: "what cannot be watched is unknown, not fine", name: "hidden",
			manifest: []string{"Applied=True/AppliedManifestComplete@7", "Available=Unknown/FetchingResourceFailed@0", "Healthy=Unknown/Unknown@0"},
			work:     []string{"Applied=True/AppliedWorkComplete@3", "Available=Unknown/ResourcesStatusUnknown@3", "Healthy=Unknown/Unknown@3"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &work{policy: Multicluster()}
			w.recordOutcomes(&plan.Spec{Generation: 3}, []plan.Step{stepOf(t, 0, tc.name, tc.err)}, map[int]result{0: {generation: 7}})
			s, _, ok := w.status(tc.view, metav1.Now())
			if !ok {
				t.Fatal("nothing to tell")
			}
			if diff := cmp.Diff(tc.manifest, text(s.Manifests[0].Conditions)); diff != "" {
				t.Errorf("%s: manifest (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.work, text(s.Conditions)); diff != "" {
				t.Errorf("%s: work (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTransitionTimeMovesWithStatus(t *testing.T) {
	v := fakeReader{"a": {UID: "u", Health: inventory.Health{Status: status.CurrentStatus}}, "b": {UID: "v", Health: inventory.Health{Status: status.CurrentStatus}}}
	w := &work{policy: Multicluster()}
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	tell := func(second int64, steps ...plan.Step) wire.WorkStatus {
		w.recordOutcomes(&plan.Spec{Generation: second}, steps, nil)
		s, _, _ := w.status(v, at(second))
		return s
	}
	tell(1, stepOf(t, 0, "a", nil))
	s := tell(2, stepOf(t, 0, "b", nil), stepOf(t, 1, "a", nil))
	times := func(conditions []metav1.Condition) (out []int64) {
		for _, c := range conditions {
			out = append(out, c.LastTransitionTime.Unix())
		}
		return out
	}
	if diff := cmp.Diff([]int64{1, 1, 1}, times(s.Manifests[1].Conditions)); diff != "" {
		t.Errorf("a manifest at another place (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{2, 2, 2}, times(s.Manifests[0].Conditions)); diff != "" {
		t.Errorf("a new manifest (-want +got):\n%s", diff)
	}
	s = tell(3, stepOf(t, 0, "b", nil), stepOf(t, 1, "a", errBoom))
	if diff := cmp.Diff([]int64{3, 1, 1}, times(s.Manifests[1].Conditions)); diff != "" {
		t.Errorf("a manifest that failed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{3, 1, 1}, times(s.Conditions)); diff != "" {
		t.Errorf("the work (-want +got):\n%s", diff)
	}
}
