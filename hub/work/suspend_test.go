// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/spokelet/spokelet/api/wire"
)

// withAnnotation gives a work one annotation.
func withAnnotation(name, value string) func(client.Object) {
	return func(o client.Object) { o.SetAnnotations(map[string]string{name: value}) }
}

// annotate changes a work that is stored as its users do, and has that looked at if it is
// wanted.
func (r *rig) annotate(t *testing.T, k *kind, w client.Object, annotations map[string]string) {
	t.Helper()
	before, _ := r.get(t, k, w)
	after, _ := r.get(t, k, w)
	after.Object().SetAnnotations(annotations)
	if err := r.client.Update(t.Context(), after.Object()); err != nil {
		t.Fatal(err)
	}
	if k.specChanged().Update(event.UpdateEvent{ObjectOld: before.Object(), ObjectNew: after.Object()}) {
		r.reconcile(t, k, w)
	}
}

func TestSuspensionIsSentWithoutNewGeneration(t *testing.T) {
	tests := map[string]struct {
		reason, value string
		want          bool
	}{
		"true":  {reason: "that is what is documented", value: "true", want: true},
		"True":  {reason: "any other value is none, as of the annotations of Kubernetes", value: "True"},
		"false": {reason: "it says that it is not", value: "false"},
		"empty": {reason: "it says nothing", value: ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work, key := k.newWork(managed, "w"), k.Name+"/c1/w"
				r := newRig(t, clusterNamed(managed), work)
				r.reconcile(t, k, work)
				r.report(t, managed, key, "uid-w", applied(1, metav1.ConditionTrue))
				r.writeReports(t)
				before, _ := r.sync.Source(managed, wire.KindWork).Ref(key)
				r.annotate(t, k, work, map[string]string{wire.AnnotationSuspend: tc.value})
				after, _ := r.sync.Source(managed, wire.KindWork).Ref(key)
				_, sent, ok := r.loadWork(t, key)
				if !ok || sent.Suspended != tc.want || (after.Hash != before.Hash) != tc.want || after.Generation != before.Generation {
					t.Errorf("%s: sent %t: suspended %t, changed %t", tc.reason, ok, sent.Suspended, after.Hash != before.Hash)
				}
				if tc.want && (sent.AppliedGeneration != 1 || len(sent.Spec.Workload.Manifests) != 1) {
					t.Errorf("%s: %+v", tc.reason, sent)
				}
				r.annotate(t, k, work, nil)
				if again, _ := r.sync.Source(managed, wire.KindWork).Ref(key); again != before {
					t.Errorf("%s: without the annotation it is not what it was", tc.reason)
				}
			})
		})
	}
}

func TestSuspendedDeletionIsSentWithManifests(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work := k.newWork(managed, "w", k.setDeleting, withAnnotation(wire.AnnotationSuspend, "true"))
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		_, sent, ok := r.loadWork(t, k.Name+"/c1/w")
		if !ok || !sent.Deleting || !sent.Suspended || len(sent.Spec.Workload.Manifests) != 1 {
			t.Errorf("sent %t: %+v", ok, sent)
		}
	})
}

// With the work its annotation is gone, which nobody could take off then.
func TestRemovedSuspendedWorkIsWithdrawn(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		for name, change := range map[string]func(client.Object){"deleted before": k.setDeleting, "deleted in that instant": k.addFinalizer} {
			work := k.newWork(managed, "w", change, withAnnotation(wire.AnnotationSuspend, "true"))
			r := newRig(t, clusterNamed(managed), work)
			r.reconcile(t, k, work)
			r.deleteWithoutTrace(t, k, work)
			if keys := r.sync.Source(managed, wire.KindWork).Keys(); len(keys)+len(r.tombstones) != 0 {
				t.Errorf("%s: %v, %v stay", name, keys, r.tombstones)
			}
		}
	})
}

func TestSuspendedConditionIsSetAndRemoved(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, key := k.newWork(managed, "w"), k.Name+"/c1/w"
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		says := func(s wire.WorkStatus) map[string]int64 {
			r.report(t, managed, key, "uid-w", s)
			r.writeReports(t)
			got, _ := r.get(t, k, work)
			out := map[string]int64{}
			for _, c := range *got.Conditions() {
				out[c.Type] = c.ObservedGeneration
			}
			return out
		}
		says(applied(1, metav1.ConditionTrue))
		paused := applied(1, metav1.ConditionTrue)
		paused.ObservedGeneration = 2
		suspension := metav1.Condition{
			Type: wire.ConditionSuspended, Status: metav1.ConditionTrue, Reason: wire.ReasonSuspended, ObservedGeneration: 2, LastTransitionTime: metav1.Now(),
		}
		paused.Conditions = append(paused.Conditions, suspension)
		if diff := cmp.Diff(map[string]int64{"Applied": 1, "Suspended": 2}, says(paused)); diff != "" {
			t.Errorf("suspended (-want +got):\n%s", diff)
		}
		paused.Conditions = []metav1.Condition{suspension}
		if diff := cmp.Diff(map[string]int64{"Applied": 1, "Suspended": 2}, says(paused)); diff != "" {
			t.Errorf("told by an agent that was restarted (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int64{"Applied": 2}, says(applied(2, metav1.ConditionTrue))); diff != "" {
			t.Errorf("suspended no more (-want +got):\n%s", diff)
		}
		byRule := applied(2, metav1.ConditionTrue)
		byRule.Conditions = append(byRule.Conditions, metav1.Condition{
			Type: wire.ConditionSuspended, Status: metav1.ConditionFalse, Reason: "ConditionRulesAggregated", ObservedGeneration: 2, LastTransitionTime: metav1.Now(),
		})
		if diff := cmp.Diff(map[string]int64{"Applied": 2, "Suspended": 2}, says(byRule)); diff != "" {
			t.Errorf("a rule of that name (-want +got):\n%s", diff)
		}
		got, _ := r.get(t, k, work)
		if c := meta.FindStatusCondition(*got.Conditions(), wire.ConditionSuspended); c.Reason != "ConditionRulesAggregated" {
			t.Errorf("a rule of that name: %+v", c)
		}
	})
}
