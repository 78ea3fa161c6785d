// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

const (
	asked  = "aaaaaaaaaaaaaaaa"
	former = "bbbbbbbbbbbbbbbb"
)

func condition(kind string, status metav1.ConditionStatus, generation int64, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, Message: message}
}

// served makes a work of generation 2 one that its cluster serves with a revision, with
// three pods.
func served(w *workv1.ManifestWork, revision string) *workv1.ManifestWork {
	w.Generation = 2
	w.Status.Conditions = []metav1.Condition{
		condition(workv1.WorkApplied, metav1.ConditionTrue, 2, "Apply manifest work complete"),
		condition(ConditionServed, metav1.ConditionTrue, 2, revision+" "+testImage),
	}
	w.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{
		{ResourceMeta: workv1.ManifestResourceMeta{Kind: "Namespace", Resource: "namespaces", Name: "workers-1234"}, Conditions: []metav1.Condition{
			condition(workv1.ManifestApplied, metav1.ConditionTrue, 2, ""),
		}},
		{
			ResourceMeta: workv1.ManifestResourceMeta{Group: "apps", Kind: "Deployment", Resource: "deployments", Name: "bundle-1234"},
			Conditions: []metav1.Condition{
				condition(workv1.ManifestApplied, metav1.ConditionTrue, 2, ""), condition(workv1.ManifestAvailable, metav1.ConditionTrue, 0, ""),
			},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "Replicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: new(int64(4))}},
				{Name: "AvailableReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: new(int64(3))}},
			}},
		},
		{ResourceMeta: workv1.ManifestResourceMeta{Group: "networking.k8s.io", Kind: "Ingress", Resource: "ingresses", Name: "bundle-1234"}, Conditions: []metav1.Condition{
			condition(workv1.ManifestApplied, metav1.ConditionTrue, 2, ""),
		}},
	}
	return w
}

// refuse has a cluster not take a manifest.
func refuse(i int, message string) func(*workv1.ManifestWork) {
	return func(w *workv1.ManifestWork) {
		w.Status.Conditions[0].Status, w.Status.Conditions[0].Message = metav1.ConditionFalse, "Failed to apply manifest work"
		if i >= 0 {
			w.Status.ResourceStatus.Manifests[i].Conditions[0] = condition(workv1.ManifestApplied, metav1.ConditionFalse, 2, message)
		}
	}
}

type statusCase struct {
	reason string
	change []func(*workv1.ManifestWork)
	want   bundlev1alpha1.ClusterStatus
}

// checkStatuses begins with a work that is served as it is asked for.
func checkStatuses(t *testing.T, tests map[string]statusCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := served(&workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "spoke1"}}, asked)
			for _, change := range tc.change {
				change(w)
			}
			tc.want.Name = "spoke1"
			if diff := cmp.Diff(tc.want, Status(w, asked)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// says has the rule say something.
func says(status metav1.ConditionStatus, generation int64, message string) func(*workv1.ManifestWork) {
	return func(w *workv1.ManifestWork) {
		w.Status.Conditions[1] = condition(ConditionServed, status, generation, message)
	}
}

type want = bundlev1alpha1.ClusterStatus

func TestStatusIgnoresAnswerToOtherRevision(t *testing.T) {
	checkStatuses(t, map[string]statusCase{
		"it is served": {
			reason: "all is applied, and the rule says so of this revision",
			want:   want{Ready: true, Image: testImage, AvailableReplicas: 3},
		},
		"no answer at all": {
			reason: "the agent has not seen the work", change: []func(*workv1.ManifestWork){func(w *workv1.ManifestWork) { w.Status = workv1.ManifestWorkStatus{} }},
			want: want{Message: messageUnanswered},
		},
		"the answer is to what was asked before": {
			reason: "the old image is still served, and told", change: []func(*workv1.ManifestWork){
				says(metav1.ConditionTrue, 2, former+" old@sha256:1"), func(w *workv1.ManifestWork) { w.Generation = 3 },
			},
			want: want{Image: "old@sha256:1", AvailableReplicas: 3, Message: messageUnanswered},
		},
		"what was asked before was refused": {
			reason: "that is over; nobody knows of this one", change: []func(*workv1.ManifestWork){
				refuse(2, "no"), says(metav1.ConditionTrue, 2, former+" old@sha256:1"), func(w *workv1.ManifestWork) { w.Generation = 3 },
			},
			want: want{Image: "old@sha256:1", AvailableReplicas: 3, Message: messageUnanswered},
		},
		"the Deployment is of another revision": {
			reason: "all is applied, but nobody looked at it since", change: []func(*workv1.ManifestWork){says(metav1.ConditionTrue, 2, former+" old@sha256:1")},
			want: want{Image: "old@sha256:1", AvailableReplicas: 3, Message: messageUnanswered},
		},
		"the rule was read in another generation": {
			reason: "it may be from before the rest was applied", change: []func(*workv1.ManifestWork){says(metav1.ConditionTrue, 1, asked+" "+testImage)},
			want: want{Image: testImage, AvailableReplicas: 3, Message: messageUnanswered},
		},
		"secrets that stayed went": {
			reason: "the revision is the same, and served", change: []func(*workv1.ManifestWork){func(w *workv1.ManifestWork) { w.Generation = 3 }},
			want: want{Ready: true, Image: testImage, AvailableReplicas: 3},
		},
	})
}

func TestStatusReportsMissingPods(t *testing.T) {
	checkStatuses(t, map[string]statusCase{
		"pods are missing": {
			reason: "the rule says how many, and why", change: []func(*workv1.ManifestWork){says(metav1.ConditionFalse, 2, asked+" "+testImage+`: 1 of 2 pods are up to date, 1 available; ReplicaSet "x" has timed out: progressing`)},
			want: want{AvailableReplicas: 3, Message: `1 of 2 pods are up to date, 1 available; ReplicaSet "x" has timed out: progressing`},
		},
		"pods are missing and nobody says why": {
			reason: "there is a message all the same", change: []func(*workv1.ManifestWork){says(metav1.ConditionFalse, 2, asked+" "+testImage)},
			want: want{AvailableReplicas: 3, Message: "not all pods are available"},
		},
		"nobody knows whether": {
			reason: "only True is true", change: []func(*workv1.ManifestWork){says(metav1.ConditionUnknown, 2, asked+" "+testImage)},
			want: want{AvailableReplicas: 3, Message: "not all pods are available"},
		},
		"the rule fails": {
			reason: "its error is the answer", change: []func(*workv1.ManifestWork){says(metav1.ConditionFalse, 2, "no such key: annotations")},
			want: want{AvailableReplicas: 3, Message: "the cluster cannot tell how the Deployment is: no such key: annotations"},
		},
		"a rule of which nothing is said": {
			reason: "the Deployment was applied, but not seen", change: []func(*workv1.ManifestWork){func(w *workv1.ManifestWork) { w.Status.Conditions = w.Status.Conditions[:1] }},
			want: want{AvailableReplicas: 3, Message: messageUnanswered},
		},
	})
}

func TestStatusReportsApplyFailures(t *testing.T) {
	checkStatuses(t, map[string]statusCase{
		"an Ingress that is refused": {
			reason: "it is named; pods run all the same", change: []func(*workv1.ManifestWork){refuse(2, "Failed to apply manifest: host is in use")},
			want: want{Image: testImage, AvailableReplicas: 3, Message: "Ingress bundle-1234: Failed to apply manifest: host is in use"},
		},
		"several that are refused": {
			reason: "the first is named", change: []func(*workv1.ManifestWork){refuse(0, "forbidden"), refuse(1, "forbidden"), refuse(2, "forbidden")},
			want: want{Image: testImage, AvailableReplicas: 3, Message: "Namespace workers-1234: forbidden (and 2 more)"},
		},
		"a work that is refused whole": {
			reason: "no manifest has a message", change: []func(*workv1.ManifestWork){refuse(-1, "")},
			want: want{Image: testImage, AvailableReplicas: 3, Message: "Failed to apply manifest work"},
		},
		"a Deployment that is gone": {
			reason: "what was said of it stays in the status", change: []func(*workv1.ManifestWork){func(w *workv1.ManifestWork) {
				w.Status.ResourceStatus.Manifests[1].Conditions[1] = condition(workv1.ManifestAvailable, metav1.ConditionFalse, 0, "Resource is not available")
			}},
			want: want{Image: testImage, AvailableReplicas: 3, Message: "Deployment: Resource is not available"},
		},
		"a status that had no room for its manifests": {
			reason: "the work's condition is there", change: []func(*workv1.ManifestWork){func(w *workv1.ManifestWork) { w.Status.ResourceStatus.Manifests = nil }},
			want: want{Ready: true, Image: testImage},
		},
		"a work that is being deleted": {
			reason: "it serves for a while, but is not to", change: []func(*workv1.ManifestWork){func(w *workv1.ManifestWork) { w.DeletionTimestamp = new(metav1.Now()) }},
			want: want{Image: testImage, AvailableReplicas: 3, Message: messageLeaving},
		},
	})
}

func TestStatusOfMissingWork(t *testing.T) {
	if diff := cmp.Diff(bundlev1alpha1.ClusterStatus{Message: messageUnsent}, Status(nil, asked)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusWithoutRevisionIsNotReady(t *testing.T) {
	for name, w := range map[string]*workv1.ManifestWork{
		"served": served(&workv1.ManifestWork{}, asked),
		"empty":  {Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{condition(workv1.WorkApplied, metav1.ConditionTrue, 0, "")}}},
	} {
		if s := Status(w, ""); s.Ready || s.Message == "" {
			t.Errorf("%s work: status is %+v", name, s)
		}
	}
}

func TestStatusMessageIsTruncated(t *testing.T) {
	long := strings.Repeat("é", 4000)
	w := served(&workv1.ManifestWork{}, asked)
	w.Status.Conditions[1] = condition(ConditionServed, metav1.ConditionFalse, 2, asked+" "+testImage+": "+long)
	refused := served(&workv1.ManifestWork{}, asked)
	refuse(1, long)(refused)
	refuse(2, long)(refused)
	for _, w := range []*workv1.ManifestWork{w, refused} {
		if m := Status(w, asked).Message; len(m) > maxMessage || !strings.HasSuffix(m, "...") || strings.ToValidUTF8(m, "?") != m {
			t.Errorf("message has %d bytes: %q", len(m), m)
		}
	}
}
