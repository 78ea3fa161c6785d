// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

// recorded is a queue that keeps what it is given, and when that is due.
type recorded struct {
	queue

	names []string
	after time.Duration
}

func newQueue() *recorded { return &recorded{} }

func (r *recorded) Add(q reconcile.Request) { r.AddAfter(q, 0) }

func (r *recorded) AddAfter(q reconcile.Request, d time.Duration) {
	r.names, r.after = append(r.names, q.String()), d
}

// take returns what has come, each once.
func (r *recorded) take() []string {
	names := r.names
	r.names = nil
	slices.Sort(names)
	return slices.Compact(names)
}

func TestWorkEventsEnqueueParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newSet(), cluster("store-1"))
		k, q := r.kind(kindWorkSet), newQueue()
		h := k.workHandler()
		mine := newWork(newWorkSetParent(newSet()), alice, registered, "store-1")
		others := &v1alpha1.Work{}
		h.Create(t.Context(), event.CreateEvent{Object: mine}, q)
		if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" || q.after != 0 {
			t.Errorf("a work (-want +got), after %s:\n%s", q.after, diff)
		}
		r.settle(kindWorkSet)
		if _, err := k.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		r.answer(newWorkSetParent(newSet()), "store-1", "Completed", "", "")
		if _, err := k.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: mine, ObjectNew: others}, q)
		if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" || q.after != statusInterval {
			t.Errorf("one that was, when the status was just written (-want +got), after %s:\n%s", q.after, diff)
		}
		h.Delete(t.Context(), event.DeleteEvent{Object: mine}, q)
		if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" || q.after != 0 {
			t.Errorf("one that is deleted is made again at once (-want +got), after %s:\n%s", q.after, diff)
		}
		h.Delete(t.Context(), event.DeleteEvent{Object: others}, q)
		h.Create(t.Context(), event.CreateEvent{Object: newWork(newResourceViewParent(newView()), alice, registered, "store-1")}, q)
		if names := q.take(); len(names) > 0 {
			t.Errorf("works of others lead to %v", names)
		}
		k.setBlocking(request.NamespacedName, []client.ObjectKey{{Namespace: "store-1", Name: "w"}})
		others.Namespace, others.Name = "store-1", "w"
		h.Delete(t.Context(), event.DeleteEvent{Object: others}, q)
		if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" {
			t.Errorf("one that was in the way (-want +got):\n%s", diff)
		}
	})
}

func TestClusterEventsEnqueueSelectingParents(t *testing.T) {
	none, all, invalid := setNamed("shop", "none"), setNamed("shop", "everything"), setNamed("shop", "invalid")
	all.Spec.ClusterSelector = newSelector()
	all.Spec.ClusterSelector.MatchLabels = nil
	invalid.Spec.ClusterSelector = newSelector()
	invalid.Spec.ClusterSelector.MatchLabels = map[string]string{"-": "-"}
	r := newRig(t, newSet(), none, all, invalid)
	cases := map[string]struct {
		reason string
		labels map[string]string
		want   []string
	}{
		"as they select": {reason: "it may have joined", labels: map[string]string{"fan": "out"}, want: []string{"shop/all", "shop/everything"}},
		"otherwise":      {reason: "most parents are not concerned", want: []string{"shop/everything"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, q := range r.kind(kindWorkSet).listSelecting(t.Context(), cluster("c", func(c *clusterv1.ManagedCluster) { c.Labels = tc.labels })) {
				got = append(got, q.String())
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIrrelevantClusterEventsAreIgnored(t *testing.T) {
	cases := map[string]struct {
		change func(*clusterv1.ManagedCluster)
		want   bool
	}{
		"a status":      {change: func(c *clusterv1.ManagedCluster) { c.Status.Version.Kubernetes = "v1.36.3" }},
		"an annotation": {change: func(c *clusterv1.ManagedCluster) { c.Annotations["a"] = "b" }},
		"a label":       {change: func(c *clusterv1.ManagedCluster) { c.Labels["a"] = "b" }, want: true},
		"acceptance":    {change: func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }, want: true},
		"whose it is":   {change: func(c *clusterv1.ManagedCluster) { c.Annotations = nil }, want: true},
		"that it leaves": {
			change: func(c *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(c, time.Now()) }, want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := selectionChanged().Update(event.UpdateEvent{ObjectOld: cluster("c"), ObjectNew: cluster("c", tc.change)}); got != tc.want {
				t.Errorf("parents are looked at: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestForeignWorkDeletedMeanwhileIsNotAwaited(t *testing.T) {
	r := newRig(t, newSet())
	gone := []client.ObjectKey{{Namespace: "store-1", Name: "gone"}}
	if !r.kind(kindWorkSet).isUnblocked(t.Context(), gone) {
		t.Error("nobody will say that it is gone, and the parent waits")
	}
	there := newWork(newWorkSetParent(newSet()), requester.User{User: "alice"}, registered, "store-1")
	if err := r.api.Create(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	if r.kind(kindWorkSet).isUnblocked(t.Context(), []client.ObjectKey{client.ObjectKeyFromObject(there)}) {
		t.Error("it is there, and not waited for")
	}
}
