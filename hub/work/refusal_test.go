// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// newInvalidError is what the API server says of a status with something at a path.
func newInvalidError(path string) error {
	at, rest, _ := strings.Cut(path, ".")
	return apierrors.NewInvalid(schema.GroupKind{Group: workv1.GroupName, Kind: "ManifestWork"}, "w",
		field.ErrorList{field.Invalid(field.NewPath(at).Child(rest), "boom", "should be another")})
}

func TestRefusedStatusIsWrittenWithoutRefusedParts(t *testing.T) {
	const value = "status.resourceStatus.manifests[0].statusFeedback.values[1].fieldValue.integer"
	tests := map[string]struct {
		reason string
		refuse func(patch string) error
		values []workv1.FeedbackValue
		synced string
		// trimmed is the message of StatusTrimmed, and none that nothing is written.
		trimmed string
		none    bool
	}{
		"nothing": {
			reason: "all is written", refuse: func(string) error { return nil },
			values: []workv1.FeedbackValue{integer("a", 1), integer("bad", 2), integer("c", 3)},
		},
		"a value": {
			reason: "the other values are written, and the manifest says what is not",
			refuse: func(patch string) error {
				if strings.Contains(patch, `"name":"bad"`) {
					return newInvalidError(value)
				}
				return nil
			},
			values: []workv1.FeedbackValue{integer("a", 1), integer("c", 3)},
			synced: `Sync status feedback failed with error value "bad" is refused by the hub: Invalid value: "boom": should be another`,
		},
		"all values": {
			reason: "what is refused once more is not tried value by value",
			refuse: func(patch string) error {
				if strings.Contains(patch, `"values"`) {
					return newInvalidError(value)
				}
				return nil
			},
			trimmed: `1 of 1 manifests are left out: patch status: ManifestWork.work.open-cluster-management.io "w" is invalid: ` + value + `: Invalid value: "boom": should be another`,
		},
		"the size": {
			reason: "the conditions of the work are written",
			refuse: func(patch string) error {
				if strings.Contains(patch, `"manifests"`) {
					return apierrors.NewRequestEntityTooLargeError("limit is 1")
				}
				return nil
			},
			trimmed: "1 of 1 manifests are left out: patch status: Request entity too large: limit is 1",
		},
		"everything": {
			reason: "it is not tried again", refuse: func(string) error { return newInvalidError("status.conditions[0].reason") }, none: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k := manifestWorks(testHash, false)
			w := k.newWork(managed, "w", k.addFinalizer)
			r := newRig(t, clusterNamed(managed), w)
			logged := r.logErrors()
			r.refusing = tc.refuse
			said := withFeedback(integer("a", 1), integer("bad", 2), integer("c", 3))
			r.report(t, managed, "manifestwork/c1/w", "uid-w", said)
			if refused := tc.synced != "" || tc.trimmed != "" || tc.none; (*logged > 0) != refused {
				t.Errorf("%s: %d errors are logged", tc.reason, *logged)
			}
			if r.writes > 3 || r.queue.PendingCount() > 0 || r.queue.NumRequeues(wire.WorkKey{Dialect: k.Name, Namespace: managed, Name: "w"}) > 0 {
				t.Errorf("%s: %d writes, then %d reports wait", tc.reason, r.writes, r.queue.PendingCount())
			}
			got, _ := r.get(t, k, w)
			if meta.IsStatusConditionTrue(*got.Conditions(), "Applied") == tc.none {
				t.Errorf("%s: conditions %+v", tc.reason, *got.Conditions())
			}
			if diff := cmp.Diff(tc.trimmed, messageOf(*got.Conditions(), conditionTrimmed)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", tc.reason, conditionTrimmed, diff)
			}
			manifests := r.manifests(t, w)
			if (len(manifests) == 0) != (tc.trimmed != "" || tc.none) {
				t.Fatalf("%s: %d manifests", tc.reason, len(manifests))
			}
			for _, m := range manifests {
				if diff := cmp.Diff(tc.values, m.StatusFeedbacks.Values); diff != "" {
					t.Errorf("%s: values (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.synced, messageOf(m.Conditions, "StatusFeedbackSynced")); diff != "" {
					t.Errorf("%s: StatusFeedbackSynced (-want +got):\n%s", tc.reason, diff)
				}
			}
			written := len(r.patches)
			r.report(t, managed, "manifestwork/c1/w", "uid-w", said)
			if len(r.patches) != written {
				t.Errorf("%s: the same report is written again: %s", tc.reason, r.patches[written])
			}
			r.refusing = nil
			r.report(t, managed, "manifestwork/c1/w", "uid-w", said)
			got, _ = r.get(t, k, w)
			if c := meta.FindStatusCondition(*got.Conditions(), conditionTrimmed); c != nil || len(r.manifests(t, w)) != 1 {
				t.Errorf("%s: what is taken again is left out: %+v", tc.reason, c)
			}
		})
	}
}

func messageOf(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// logErrors counts what is logged as an error.
func (r *rig) logErrors() *int {
	n := 0
	r.log = funcr.New(func(_, line string) {
		if strings.Contains(line, `"error"=`) {
			n++
		}
	}, funcr.Options{})
	return &n
}

func TestFinalizerRemovalIsRetried(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w", k.setDeleting)
		r := newRig(t, clusterNamed(managed), w)
		logged := r.logErrors()
		r.patching = func() error { return apierrors.NewBadRequest("boom") }
		body := statusBody(t, wire.WorkStatus{ObservedGeneration: 1, Finalized: true})
		r.receive(managed, resource.Resource{Key: k.Name + "/c1/w", UID: "uid-w", Body: body})
		r.handleNext(t.Context())
		if _, there := r.get(t, k, w); !there || *logged != 1 || r.queue.PendingCount() != 1 {
			t.Fatalf("the work is there: %t; %d errors are logged, %d reports wait", there, *logged, r.queue.PendingCount())
		}
		r.patching = nil
		r.handleNext(t.Context())
		if _, there := r.get(t, k, w); there {
			t.Error("the work is still there")
		}
	})
}
