// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

func TestHubHashUsesURLVerbatim(t *testing.T) {
	tests := map[string]struct{ reason, url, want string }{
		"empty": {reason: "the hash of nothing", want: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		"a URL": {reason: "lower-case hex", url: "https://hub:6443", want: "9f63aa51ee73742847a1dd584c640c8b579dc14418ab416e3dd716fbe9362d31"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := HubHash(tc.url); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
	if HubHash("https://hub:6443") == HubHash("https://hub:6443/") {
		t.Error("the URL is hashed verbatim")
	}
}

func TestMaxManifestWorkNameLeavesRoomForHubHash(t *testing.T) {
	if got := len(HubHash("")) + len("-") + MaxManifestWorkName; got != 253 {
		t.Errorf("an AppliedManifestWork may have %d characters, want 253", got)
	}
}

func rawManifest(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(text)} }

func TestFromManifestWork(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	spec := workv1.ManifestWorkSpec{
		Workload:     workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: rawManifest(`{"kind":"A"}`)}}},
		DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan},
		Executor:     &workv1.ManifestWorkExecutor{},
	}
	labels := map[string]string{"a": "b"}
	tests := map[string]struct {
		reason      string
		deleted     *metav1.Time
		annotations map[string]string
		want        wire.Work
	}{
		"a work that is suspended and going": {
			reason: "an agent that was restarted tells of what the manifests name", deleted: &now,
			annotations: map[string]string{wire.AnnotationSuspend: "true"},
			want: wire.Work{
				Generation: 3, Deleting: true, HubHash: "hash", Labels: labels, Healthy: true, Suspended: true, AppliedGeneration: 2, Spec: spec,
			},
		},
		"a work": {
			reason: "the spec is the canonical form",
			want:   wire.Work{Generation: 3, HubHash: "hash", Labels: labels, Healthy: true, Spec: spec},
		},
		"a work that is going": {
			reason: "all it takes to collect is the delete option", deleted: &now,
			want: wire.Work{
				Generation: 3, Deleting: true, HubHash: "hash", Labels: labels, Healthy: true,
				Spec: workv1.ManifestWorkSpec{DeleteOption: spec.DeleteOption},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			mw := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 3, Labels: labels, DeletionTimestamp: tc.deleted, Annotations: tc.annotations}, Spec: spec}
			mw.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, ObservedGeneration: 2}}
			if diff := cmp.Diff(tc.want, FromManifestWork(mw, "hash", true)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFromMulticluster(t *testing.T) {
	w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	w.Spec.Workload.Manifests = []v1alpha1.Manifest{{RawExtension: rawManifest(`{"kind":"A"}`)}}
	want := wire.Work{Generation: 3, Spec: workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: rawManifest(`{"kind":"A"}`)}}},
	}}
	if diff := cmp.Diff(want, FromMulticluster(w)); diff != "" {
		t.Errorf("work (-want +got):\n%s", diff)
	}
	now := metav1.Now()
	w.DeletionTimestamp = &now
	if diff := cmp.Diff(wire.Work{Generation: 3, Deleting: true}, FromMulticluster(w)); diff != "" {
		t.Errorf("work that is going (-want +got):\n%s", diff)
	}
}

func TestObservedGenerationIgnoresForeignConditions(t *testing.T) {
	got := ObservedGeneration([]metav1.Condition{
		{Type: workv1.WorkApplied, ObservedGeneration: 2}, {Type: workv1.WorkAvailable, ObservedGeneration: 3}, {Type: "Theirs", ObservedGeneration: 9},
	})
	if got != 3 {
		t.Errorf("observed generation %d, want 3", got)
	}
}

func TestMergeDoesNotChangeArguments(t *testing.T) {
	old := ocmStage{}
	for _, line := range []string{
		"report 1 1 Applied/1 Ready/1=ConditionRulesAggregated | a Applied/1 Available Ready/1=ConditionRuleEvaluated StatusFeedbackSynced {x:1}",
		"report 2 2 Applied!/2 Available/2 | a Applied/2 Available StatusFeedbackSynced {x:2} | b Applied!/2",
	} {
		r, now := parseReport(t, line)
		status, report := *old.status.DeepCopy(), r
		report.Conditions = append([]metav1.Condition(nil), r.Conditions...)
		next := MergeManifestWork(old.status, r, now)
		if diff := cmp.Diff(status, old.status); diff != "" {
			t.Errorf("the status before (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(report, r); diff != "" {
			t.Errorf("the report (-before +after):\n%s", diff)
		}
		old.status = next
	}
}

// FuzzMergeManifestWork holds merging to what every reader relies on, whatever is
// stored and whatever an agent sends.
func FuzzMergeManifestWork(f *testing.F) {
	f.Add([]byte(`{}`), []byte(`{"observedGeneration":1,"conditions":[{"type":"Applied","status":"True","reason":"R","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`))
	f.Add(
		[]byte(`{"conditions":[{"type":"Theirs","status":"True","reason":"R","lastTransitionTime":"2026-01-01T00:00:00Z"}],
			"resourceStatus":{"manifests":[{"resourceMeta":{"ordinal":1,"name":"a"},"conditions":[]},{"resourceMeta":{"ordinal":0,"name":"a"},"conditions":[]}]}}`),
		[]byte(`{"manifests":[{"resourceMeta":{"ordinal":0,"name":"a"},"conditions":[]}]}`),
	)
	f.Fuzz(func(t *testing.T, stored, body []byte) {
		var old workv1.ManifestWorkStatus
		if json.Unmarshal(stored, &old) != nil || hasDuplicateTypes(old.Conditions) {
			return
		}
		r, err := wire.DecodeWorkStatus(body)
		if err != nil {
			return
		}
		next := MergeManifestWork(old, r, at(1))
		if len(next.ResourceStatus.Manifests) != len(r.Manifests) {
			t.Fatalf("%d manifests of %d", len(next.ResourceStatus.Manifests), len(r.Manifests))
		}
		if hasDuplicateTypes(next.Conditions) {
			t.Errorf("a condition comes twice: %+v", next.Conditions)
		}
		for _, c := range r.Conditions {
			got, ok := findCondition(next.Conditions, c.Type)
			if c.LastTransitionTime = got.LastTransitionTime; !ok || !equality.Semantic.DeepEqual(c, got) {
				t.Errorf("reported %+v, stored %+v", c, got)
			}
		}
		for _, c := range old.Conditions {
			if _, ok := findCondition(next.Conditions, c.Type); c.Type == "Theirs" && !isFromRule(c) && !ok {
				t.Errorf("somebody else's condition is gone: %+v", next.Conditions)
			}
		}
		if again := MergeManifestWork(next, r, at(2)); !equality.Semantic.DeepEqual(next, again) {
			t.Errorf("the same report changes the status: %s", cmp.Diff(next, again))
		}
	})
}

func hasDuplicateTypes(conditions []metav1.Condition) bool {
	seen := map[string]bool{}
	for _, c := range conditions {
		if seen[c.Type] {
			return true
		}
		seen[c.Type] = true
	}
	return false
}
