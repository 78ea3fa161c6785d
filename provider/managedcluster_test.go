// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

func record(change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{
			Name: "spoke1", UID: "m1", Generation: 3, Labels: map[string]string{"region": "eu"},
			Annotations: map[string]string{managedcluster.AnnotationManaged: "true", managedcluster.AnnotationClusterID: "id-1", wire.AnnotationSplitLabel: poolLabel},
		},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	if change != nil {
		change(c)
	}
	return c
}

func reconciler(t *testing.T, p *Provider, objects ...client.Object) (*recordReconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clusterv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(10)
	c := crfake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.ManagedCluster{}).WithObjects(objects...).Build()
	return &recordReconciler{provider: p, client: c, events: recorder}, recorder
}

var request = reconcile.Request{NamespacedName: types.NamespacedName{Name: "spoke1"}}

// reconcileOnce looks at the record once, and has a second pass.
func reconcileOnce(t *testing.T, r *recordReconciler) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	pass(time.Second)
}

// recordOf reads the record.
func recordOf(t *testing.T, r *recordReconciler) *clusterv1.ManagedCluster {
	t.Helper()
	var c clusterv1.ManagedCluster
	if err := r.client.Get(t.Context(), request.NamespacedName, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestReconcileEnsuresNodeOfAcceptedCluster(t *testing.T) {
	now := metav1.Now()
	cases := map[string]struct {
		reason string
		record *clusterv1.ManagedCluster
		want   bool
	}{
		"accepted":     {reason: "an accepted cluster is a node", record: record(nil), want: true},
		"gone":         {reason: "its node goes with the record"},
		"not accepted": {reason: "nobody has admitted it", record: record(func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })},
		"not ours":     {reason: "another's cluster is another's", record: record(func(c *clusterv1.ManagedCluster) { delete(c.Annotations, managedcluster.AnnotationManaged) })},
		"without an id": {
			reason: "it has not been registered yet",
			record: record(func(c *clusterv1.ManagedCluster) { delete(c.Annotations, managedcluster.AnnotationClusterID) }),
		},
		"being deleted": {
			reason: "it is as good as gone",
			record: record(func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp, c.Finalizers = &now, []string{"x/y"} }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, fake.NewSimpleClientset())
				defer h.stop()
				h.ensure(spoke1)
				var objects []client.Object
				if tc.record != nil {
					objects = append(objects, tc.record)
				}
				r, _ := reconciler(t, h.provider, objects...)
				reconcileOnce(t, r)
				if got := h.node("spoke1") != nil; got != tc.want {
					t.Errorf("%s: has a node: got %t, want %t", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestRegistrationConditionFollowsTakenName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spoke1", UID: "f"}}
		h := startHub(t, fake.NewSimpleClientset(foreign))
		defer h.stop()
		r, recorder := reconciler(t, h.provider, record(nil))
		again := 0
		h.provider.enqueueAfter = func(string, time.Duration) { again++ }
		reconcileTwice := func() *metav1.Condition {
			t.Helper()
			for range 2 { // the second time there is nothing to be said
				reconcileOnce(t, r)
			}
			return meta.FindStatusCondition(recordOf(t, r).Status.Conditions, ConditionNodeRegistered)
		}
		if c := reconcileTwice(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != ReasonNameTaken || c.ObservedGeneration != 3 {
			t.Fatalf("condition while the name is taken: %+v", c)
		}
		if again != 1 {
			t.Errorf("record was asked for %d times, want once", again)
		}
		if err := h.client.CoreV1().Nodes().Delete(t.Context(), "spoke1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if again != 2 {
			t.Errorf("record was asked for %d times when the name was freed, want once more", again)
		}
		if c := reconcileTwice(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != ReasonRegistered {
			t.Fatalf("condition when the name is free: %+v", c)
		}
		if got := len(recorder.Events); got != 2 {
			t.Errorf("%d events, want one for each change", got)
		}
	})
}

func TestHealthyClusterHasNoRegistrationCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		r, recorder := reconciler(t, h.provider, record(nil))
		for range 3 {
			reconcileOnce(t, r)
		}
		if got := recordOf(t, r).Status.Conditions; len(got) != 0 || len(recorder.Events) != 0 {
			t.Errorf("conditions %v, %d events", got, len(recorder.Events))
		}
	})
}
