// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/api/wire"
)

func setTerminating(c *clusterv1.ManagedCluster) {
	now := metav1.Now()
	c.DeletionTimestamp, c.Finalizers = &now, []string{"example.com/theirs"}
}

func TestPendingReportIsDroppedWhenClusterIsNotManaged(t *testing.T) {
	tests := map[string]struct {
		reason  string
		cluster *clusterv1.ManagedCluster
		written bool
	}{
		"a cluster of ours":     {reason: "it is what the status is for", cluster: clusterNamed(managed), written: true},
		"no cluster any more":   {reason: "the namespace is not a cluster's", cluster: clusterNamed("other")},
		"somebody else's":       {reason: "the other hub writes what its agent says", cluster: clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Annotations = nil })},
		"one that is going":     {reason: "it is ours until it is gone", cluster: clusterNamed(managed, setTerminating), written: true},
		"one that is not taken": {reason: "its agent says nothing again that the hub knows", cluster: clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }), written: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k *kind) {
				stays, goes := k.newWork(managed, "stays", k.addFinalizer), k.newWork(managed, "goes", k.setDeleting)
				r := newRig(t, tc.cluster, stays, goes)
				r.report(t, managed, k.Name+"/c1/stays", "uid-stays", applied(1, metav1.ConditionTrue))
				r.report(t, managed, k.Name+"/c1/goes", "uid-goes", wire.WorkStatus{ObservedGeneration: 1, Finalized: true})
				if got, _ := r.get(t, k, stays); (len(*got.Conditions()) > 0) != tc.written {
					t.Errorf("%s: status %+v", tc.reason, got.Status())
				}
				if _, there := r.get(t, k, goes); there == tc.written {
					t.Errorf("%s: the work that is finalized is there: %t", tc.reason, there)
				}
				if r.queue.PendingCount() > 0 {
					t.Errorf("%s: %d reports wait", tc.reason, r.queue.PendingCount())
				}
			})
		})
	}
}

func TestUnmanagedClusterIsForgotten(t *testing.T) {
	k := manifestWorks(testHash, false)
	r := newRig(t, clusterNamed(managed), k.newWork(managed, "w", k.addFinalizer))
	look := func() {
		t.Helper()
		if _, err := (clusterReconciler{r.Works}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: managed}}); err != nil {
			t.Fatal(err)
		}
	}
	record := &clusterv1.ManagedCluster{}
	own := func(annotations map[string]string, want int) {
		t.Helper()
		if err := r.client.Get(t.Context(), client.ObjectKey{Name: managed}, record); err != nil {
			t.Fatal(err)
		}
		record.Annotations = annotations
		if err := r.client.Update(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		look()
		if got := r.sync.Source(managed, wire.KindWork).Keys(); len(got) != want {
			t.Errorf("published %v, want %d", got, want)
		}
	}
	own(clusterNamed(managed).Annotations, 1)
	own(nil, 0)
	own(clusterNamed(managed).Annotations, 1)
}

// A run that has found the cluster accepted, and is overtaken by its end, must not leave
// a finalizer behind that nobody takes off.
func TestReleaseWaitsForFinalizerBeingAdded(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		w := k.newWork(managed, "w")
		r := newRig(t, clusterNamed(managed, func(c *clusterv1.ManagedCluster) { c.Finalizers = []string{"example.com/theirs"} }), w)
		released := make(chan error, 1)
		r.patching = func() error {
			r.patching = nil
			if err := r.client.Delete(t.Context(), clusterNamed(managed)); err != nil {
				return err
			}
			go func() {
				_, err := r.Release(t.Context(), managed)
				released <- err
			}()
			select {
			case err := <-released:
				released <- err
			case <-time.After(50 * time.Millisecond):
			}
			return nil
		}
		r.reconcile(t, k, w)
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		if got, _ := r.get(t, k, w); controllerutil.ContainsFinalizer(got.Object(), k.Finalizer) {
			t.Errorf("finalizers %v", got.Object().GetFinalizers())
		}
		r.reconcile(t, k, w)
		if got, _ := r.get(t, k, w); controllerutil.ContainsFinalizer(got.Object(), k.Finalizer) {
			t.Errorf("finalizers %v after another look", got.Object().GetFinalizers())
		}
	})
}
