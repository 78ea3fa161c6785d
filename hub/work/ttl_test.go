// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// finished makes a ManifestWork that has been complete for a time.
func finished(ttl *int64, since time.Duration, change ...func(*workv1.ManifestWork)) *workv1.ManifestWork {
	work := manifestWorks(testHash, false).newWork(managed, "w").(*workv1.ManifestWork)
	work.Spec.DeleteOption = &workv1.DeleteOption{TTLSecondsAfterFinished: ttl}
	work.Status.Conditions = []metav1.Condition{{
		Type: workv1.WorkComplete, Status: metav1.ConditionTrue, Reason: "ConditionRulesAggregated",
		LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
	}}
	for _, f := range change {
		f(work)
	}
	return work
}

func TestFinishedWorkIsDeletedAfterTTL(t *testing.T) {
	began := time.Now()
	tests := map[string]struct {
		reason  string
		work    *workv1.ManifestWork
		cluster func(*clusterv1.ManagedCluster)
		gone    bool
		waits   time.Duration
	}{
		"over":            {reason: "the time ran out a minute ago", work: finished(new(int64(60)), 2*time.Minute), gone: true},
		"at once":         {reason: "0 seconds are over at once", work: finished(new(int64(0)), 0), gone: true},
		"negative":        {reason: "less than nothing is over too", work: finished(new(int64(-5)), 0), gone: true},
		"not yet":         {reason: "it comes back for the rest, and no sooner", work: finished(new(int64(60)), 20*time.Second), waits: 40 * time.Second},
		"for ever":        {reason: "no clock shows that moment", work: finished(new(int64(math.MaxInt64)), time.Hour)},
		"no time to live": {reason: "nobody asked for it", work: finished(nil, time.Hour)},
		"no option":       {reason: "nobody asked for it", work: finished(nil, time.Hour, func(w *workv1.ManifestWork) { w.Spec.DeleteOption = nil })},
		"not finished": {
			reason: "the condition says so", work: finished(new(int64(0)), time.Hour, func(w *workv1.ManifestWork) { w.Status.Conditions[0].Status = metav1.ConditionFalse }),
		},
		"nothing said": {
			reason: "there is no condition", work: finished(new(int64(0)), time.Hour, func(w *workv1.ManifestWork) { w.Status.Conditions = nil }),
		},
		"of a replica set": {
			reason: "it would be made again", work: finished(new(int64(0)), time.Hour, func(w *workv1.ManifestWork) {
				w.Labels = map[string]string{"work.open-cluster-management.io/manifestworkreplicaset": "ns.name"}
			}),
		},
		"of somebody else": {
			reason: "OCM has a controller for it", work: finished(new(int64(0)), time.Hour),
			cluster: func(c *clusterv1.ManagedCluster) { c.Annotations = nil },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := clusterNamed(managed)
			if tc.cluster != nil {
				tc.cluster(cluster)
			}
			r := newRig(t, cluster, tc.work)
			result, err := expiryReconciler{r.Works}.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.work)})
			if err != nil {
				t.Fatal(err)
			}
			if _, there := r.get(t, manifestWorks(testHash, false), tc.work); there == tc.gone {
				t.Errorf("%s: there %t", tc.reason, there)
			}
			// Conditions are stored in whole seconds, and the works are older by now.
			off := tc.waits - result.RequeueAfter
			if off < 0 || off > time.Second+time.Since(began) || (result.RequeueAfter > 0) != (tc.waits > 0) {
				t.Errorf("%s: comes back after %s, want %s", tc.reason, result.RequeueAfter, tc.waits)
			}
		})
	}
}

func TestExpiryUsesCurrentVersionOfWork(t *testing.T) {
	work := finished(new(int64(0)), time.Hour)
	r := newRig(t, clusterNamed(managed), work)
	k := manifestWorks(testHash, false)
	cached, _ := r.get(t, k, work)
	r.lagging = cached.Object()
	fresh, _ := r.get(t, k, work)
	fresh.Object().SetLabels(map[string]string{"changed": "since"})
	if err := r.client.Update(t.Context(), fresh.Object()); err != nil {
		t.Fatal(err)
	}
	result, err := expiryReconciler{r.Works}.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(work)})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("%+v, %v: want another look", result, err)
	}
	if _, there := r.get(t, k, work); !there {
		t.Error("what the cache has not seen yet was deleted")
	}
}

func TestAcceptedClusterRequeuesExpiringWorks(t *testing.T) {
	other := finished(nil, time.Hour, func(w *workv1.ManifestWork) { w.Name = "stays" })
	elsewhere := finished(new(int64(0)), time.Hour, func(w *workv1.ManifestWork) { w.Namespace = "c2" })
	r := newRig(t, clusterNamed(managed), finished(new(int64(0)), time.Hour), other, elsewhere)
	got := expiryReconciler{r.Works}.listRequests(t.Context(), clusterNamed(managed))
	if len(got) != 1 || got[0].Namespace != managed || got[0].Name != "w" {
		t.Errorf("brings %v", got)
	}
}
