// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

func TestDriftAnnotationIsSentWithoutNewGeneration(t *testing.T) {
	tests := map[string]struct {
		reason, value string
		want          bool
	}{
		"report": {reason: "that is what is documented", value: "report", want: true},
		"repair": {reason: "any other value is none", value: "repair"},
		"true":   {reason: "it does not say what to do", value: "true"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				work, key := k.newWork(managed, "w"), k.Name+"/c1/w"
				r := newRig(t, clusterNamed(managed), work)
				r.reconcile(t, k, work)
				before, _ := r.sync.Source(managed, wire.KindWork).Ref(key)
				r.annotate(t, k, work, map[string]string{wire.AnnotationDrift: tc.value})
				after, _ := r.sync.Source(managed, wire.KindWork).Ref(key)
				if _, sent, ok := r.loadWork(t, key); !ok || sent.ReportDrift != tc.want || (after.Hash != before.Hash) != tc.want || after.Generation != before.Generation {
					t.Errorf("%s: sent %t, %+v", tc.reason, ok, sent)
				}
			})
		})
	}
}

func TestDriftConditionsAreSetAndRemoved(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		work, key := k.newWork(managed, "w"), k.Name+"/c1/w"
		r := newRig(t, clusterNamed(managed), work)
		r.reconcile(t, k, work)
		says := func(s wire.WorkStatus) (all [][]string) {
			r.report(t, managed, key, "uid-w", s)
			got, _ := r.get(t, k, work)
			lists := [][]metav1.Condition{*got.Conditions()}
			switch w := got.Object().(type) {
			case *v1alpha1.Work:
				lists = append(lists, w.Status.ManifestConditions[0].Conditions)
			case *workv1.ManifestWork:
				lists = append(lists, w.Status.ResourceStatus.Manifests[0].Conditions)
			}
			for _, list := range lists {
				var types []string
				for _, c := range list {
					types = append(types, c.Type)
				}
				all = append(all, types)
			}
			return all
		}
		says(applied(1, metav1.ConditionTrue))
		compared := applied(2, metav1.ConditionTrue)
		drifted := metav1.Condition{
			Type: wire.ConditionDrifted, Status: metav1.ConditionTrue, Reason: wire.ReasonManifestsDiffer, ObservedGeneration: 2, LastTransitionTime: metav1.Now(),
		}
		compared.Conditions = []metav1.Condition{drifted}
		drifted.Reason = wire.ReasonFieldsDiffer
		compared.Manifests[0].Conditions = []metav1.Condition{drifted}
		if diff := cmp.Diff([][]string{{"Applied", "Drifted"}, {"Applied", "Drifted"}}, says(compared)); diff != "" {
			t.Errorf("compared, and what was applied is not known to be undone (-want +got):\n%s", diff)
		}
		got, _ := r.get(t, k, work)
		if c := meta.FindStatusCondition(*got.Conditions(), "Applied"); c.ObservedGeneration != 1 {
			t.Errorf("compared: %+v", c)
		}
		if diff := cmp.Diff([][]string{{"Applied"}, {"Applied"}}, says(applied(2, metav1.ConditionTrue))); diff != "" {
			t.Errorf("applied again (-want +got):\n%s", diff)
		}
	})
}
