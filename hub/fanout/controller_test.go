// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

// fanned runs a test over a WorkSet, or what it is changed to, and two clusters.
func fanned(t *testing.T, change func(*v1alpha1.WorkSet), test func(t *testing.T, r *rig, p parent), objects ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSet()
		if change != nil {
			change(s)
		}
		r := newRig(t, append(objects, s, cluster("store-1"), cluster("store-2"))...)
		test(t, r, newWorkSetParent(s))
	})
}

func TestReconcileSelectsManagedClustersOnly(t *testing.T) {
	cases := map[string]struct {
		reason   string
		selector *metav1.LabelSelector
		want     []string
	}{
		"no selector":       {reason: "what is done everywhere is to be asked for"},
		"an empty selector": {reason: "it selects all", selector: &metav1.LabelSelector{}, want: []string{"store-1", "store-2", "unlabelled"}},
		"labels":            {reason: "they are the records'", selector: newSelector(), want: []string{"store-1", "store-2"}},
	}
	others := []client.Object{
		cluster("away", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }),
		cluster("foreign", func(c *clusterv1.ManagedCluster) { c.Annotations = nil }),
		cluster("leaving", func(c *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(c, time.Now()) }),
		cluster("unlabelled", func(c *clusterv1.ManagedCluster) { c.Labels = nil }),
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fanned(t, func(s *v1alpha1.WorkSet) { s.Spec.ClusterSelector = tc.selector }, func(t *testing.T, r *rig, _ parent) {
				r.settle(kindWorkSet)
				if diff := cmp.Diff(tc.want, r.works()); diff != "" {
					t.Errorf("%s: works are in (-want +got):\n%s", tc.reason, diff)
				}
			}, others...)
		})
	}
}

func TestReconcileDeletesWorkOfDetachingCluster(t *testing.T) {
	fanned(t, func(*v1alpha1.WorkSet) {}, func(t *testing.T, r *rig, _ parent) {
		r.settle(kindWorkSet)
		if diff := cmp.Diff([]string{"store-1", "store-2"}, r.works()); diff != "" {
			t.Fatal(diff)
		}
		c := cluster("store-1")
		r.edit(c, func() { managedcluster.MarkDetaching(c, time.Now()) })
		r.settle(kindWorkSet)
		if diff := cmp.Diff([]string{"store-2"}, r.works()); diff != "" {
			t.Errorf("works are in (-want +got):\n%s", diff)
		}
	})
}

func TestResourceViewWithoutSelectorSelectsAllClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView()
		v.Spec.ClusterSelector = nil
		r := newRig(t, v, cluster("store-1"), cluster("unlabelled", func(c *clusterv1.ManagedCluster) { c.Labels = nil }),
			cluster("away", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }))
		r.settle(kindResourceView)
		if diff := cmp.Diff([]string{"store-1", "unlabelled"}, r.works()); diff != "" {
			t.Errorf("works are in (-want +got):\n%s", diff)
		}
	})
}

func TestStatusShowsClusterResults(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		steps := []struct {
			do   func()
			want v1alpha1.WorkSetStatus
		}{
			{do: func() {}, want: v1alpha1.WorkSetStatus{
				Status: "Processing", Reason: "store-1: not answered yet; store-2: not answered yet",
				Clusters: []v1alpha1.ClusterResult{{Name: "store-1"}, {Name: "store-2"}},
			}},
			{do: func() {
				r.answer(p, "store-1", "Completed", "", "")
				r.answer(p, "store-2", "Failed", "no", "")
			}, want: v1alpha1.WorkSetStatus{
				Status: "Failed", Reason: "store-2: no",
				Clusters: []v1alpha1.ClusterResult{{Name: "store-1", Type: "Completed"}, {Name: "store-2", Type: "Failed", Reason: "no"}},
			}},
			{do: func() { r.answer(p, "store-2", "Completed", "", "") }, want: v1alpha1.WorkSetStatus{
				Status:   "Completed",
				Clusters: []v1alpha1.ClusterResult{{Name: "store-1", Type: "Completed"}, {Name: "store-2", Type: "Completed"}},
			}},
			{do: func() {
				c := cluster("store-3")
				if err := r.api.Create(r.t.Context(), c); err != nil {
					t.Fatal(err)
				}
				r.settle(kindWorkSet)
				w := r.work(p, "store-3")
				w.Status = v1alpha1.WorkStatus{Type: "Processing", Reason: `cluster "store-3" is not connected`}
				r.report(w)
			}, want: v1alpha1.WorkSetStatus{
				Status: "Processing", Reason: `store-3: cluster "store-3" is not connected`,
				Clusters: []v1alpha1.ClusterResult{
					{Name: "store-1", Type: "Completed"}, {Name: "store-2", Type: "Completed"},
					{Name: "store-3", Type: "Processing", Reason: `cluster "store-3" is not connected`},
				},
			}},
			{do: func() {
				for _, name := range []string{"store-1", "store-2", "store-3"} {
					c := cluster(name)
					r.edit(c, func() { c.Labels = nil })
				}
			}, want: v1alpha1.WorkSetStatus{Status: "Completed", Reason: "no cluster is selected"}},
		}
		for i, step := range steps {
			step.do()
			r.settle(kindWorkSet)
			step.want.ObservedGeneration = 1
			if diff := cmp.Diff(step.want, r.set()); diff != "" {
				t.Errorf("status after step %d (-want +got):\n%s", i, diff)
			}
		}
		if in := r.works(); len(in) != 0 {
			t.Errorf("works of clusters that left are in %v", in)
		}
	})
}

func TestStatusIgnoresResultsOfOlderGeneration(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		r.answer(p, "store-1", "Completed", "", "")
		r.answer(p, "store-2", "Completed", "", "")
		r.settle(kindWorkSet)
		s := newSet()
		r.edit(s, func() { s.Spec.Template.Spec.ActionType, s.Generation = "Update", 2 })
		r.settle(kindWorkSet)
		if got := r.set(); got.Status != v1alpha1.WorkProcessing || got.ObservedGeneration != 2 {
			t.Errorf("status is %+v, want that nobody has answered yet", got)
		}
		if w := r.work(p, "store-1"); w.Spec.ActionType != "Update" || w.Generation != 2 {
			t.Errorf("the work is of generation %d: %+v", w.Generation, w.Spec)
		}
		r.answer(p, "store-1", "Completed", "", "")
		r.answer(p, "store-2", "Completed", "", "")
		r.settle(kindWorkSet)
		if got := r.set(); got.Status != v1alpha1.WorkCompleted {
			t.Errorf("status is %+v, want that all have answered", got)
		}
	})
}

func TestStatusIsWrittenOncePerSecond(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		k := r.kind(kindWorkSet)
		if _, err := k.Reconcile(t.Context(), request); err != nil || r.set().Status == "" {
			t.Fatalf("the first status is written at once: %v", err)
		}
		r.answer(p, "store-1", "Completed", "", "")
		time.Sleep(300 * time.Millisecond)
		result, err := k.Reconcile(t.Context(), request)
		if err != nil || result.RequeueAfter != statusInterval-300*time.Millisecond || r.set().Clusters[0].Type != "" {
			t.Errorf("the second comes in %s: %v; want what is left of a second", result.RequeueAfter, err)
		}
		time.Sleep(result.RequeueAfter)
		result, err = k.Reconcile(t.Context(), request)
		if err != nil || !result.IsZero() || r.set().Clusters[0].Type != "Completed" {
			t.Errorf("after that it is written, and nothing is to come: %+v, %v", result, err)
		}
	})
}

func TestReconcileWritesChangesOnly(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		r.answer(p, "store-1", "Completed", "", "")
		r.settle(kindWorkSet)
		before, asked := r.writes.Load(), r.denied.asked
		r.settle(kindWorkSet)
		r.restart()
		r.settle(kindWorkSet)
		if r.writes.Load() != before || r.denied.asked != asked+1 {
			t.Errorf("%d writes, and %d questions about rights, want none and the one of a hub that starts", r.writes.Load()-before, r.denied.asked-asked)
		}
	})
}

func TestReconcileRevertsChangesOfWork(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		want := r.work(p, "store-1")
		w := want.DeepCopy()
		r.edit(w, func() {
			w.Labels = nil
			w.Annotations[requester.MCM.User] = bob.Annotations(requester.MCM, registered)[requester.MCM.User]
			w.Annotations["theirs"] = "stays"
			w.Spec.ActionType = "Delete"
		})
		r.settle(kindWorkSet)
		got := r.work(p, "store-1")
		want.Annotations["theirs"] = "stays"
		if diff := cmp.Diff([]any{want.Labels, want.Annotations, want.Spec}, []any{got.Labels, got.Annotations, got.Spec}); diff != "" {
			t.Errorf("work (-want +got):\n%s", diff)
		}
	})
}

func TestDeletedParentDeletesWorks(t *testing.T) {
	stranger := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Namespace: "store-1", Name: "other", Labels: map[string]string{v1alpha1.LabelWorkSet: "shop.all"},
		Annotations: map[string]string{v1alpha1.AnnotationOwners: "WorkSet.shop.all"},
	}}
	for name, away := range map[string]bool{"while the hub runs": false, "while the hub is away": true} {
		t.Run(name, func(t *testing.T) {
			fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
				r.settle(kindWorkSet)
				r.delete(newSet())
				if away {
					r.restart()
				}
				r.settle(kindWorkSet)
				if diff := cmp.Diff([]string{"store-1"}, r.works()); diff != "" {
					t.Errorf("a work that it did not make alone is to stay (-want +got):\n%s", diff)
				}
			}, stranger.DeepCopy())
		})
	}
}

func TestRecreatedParentRecreatesWorks(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		before := r.work(p, "store-1").UID
		r.delete(newSet())
		s := newSet()
		s.UID = "another"
		if err := r.api.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		r.settle(kindWorkSet)
		if w := r.work(p, "store-1"); w.UID == before || w.Annotations[v1alpha1.AnnotationOwnerUID] != "another" {
			t.Errorf("the work %s of %s is there, which did its work already", w.UID, w.Annotations[v1alpha1.AnnotationOwnerUID])
		}
		if got := r.set(); got.Status != v1alpha1.WorkProcessing || got.ObservedGeneration != 1 {
			t.Errorf("status is %+v", got)
		}
	})
}

func TestAuthorNeedsRightInNamespaceOfCluster(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
		r.denied.set("alice/store-2", true)
		r.settle(kindWorkSet)
		if diff := cmp.Diff([]string{"store-1"}, r.works()); diff != "" {
			t.Errorf("works are in (-want +got):\n%s", diff)
		}
		want := v1alpha1.WorkSetStatus{
			Status: "Processing", Clusters: []v1alpha1.ClusterResult{{Name: "store-1"}}, Forbidden: 1, ObservedGeneration: 1,
			Reason: `store-1: not answered yet; user "alice" cannot create works.mcm.ibm.com in the namespaces of 1 clusters, which are not named, selected or not`,
		}
		if diff := cmp.Diff(want, r.set()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		q := newQueue()
		if err := r.kind(kindWorkSet).start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		r.denied.set("alice/store-2", false)
		if err := r.recheckRights(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" {
			t.Errorf("when rights change, parents are looked at (-want +got):\n%s", diff)
		}
		r.settle(kindWorkSet)
		if got := r.set(); len(r.works()) != 2 || got.Forbidden != 0 || len(got.Clusters) != 2 {
			t.Errorf("the right is there, works are in %v, status %+v", r.works(), got)
		}
	})
}

func TestRefusalIsCheckedAgainAfterChange(t *testing.T) {
	const many = 200
	var far []client.Object
	for i := range many {
		far = append(far, cluster(fmt.Sprintf("far-%d", i)))
	}
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		for _, c := range far {
			r.denied.set("alice/"+c.GetName(), true)
		}
		cases := []struct {
			reason string
			do     func()
			want   int
		}{
			{reason: "all at once, then each cluster, those that have a work too", do: func() {}, want: 1 + many + 2},
			{reason: "what another cluster answers is no reason", want: 0, do: func() {
				for i := range 10 {
					r.answer(p, "store-1", v1alpha1.WorkCompleted, strconv.Itoa(i), "")
					r.settle(kindWorkSet)
				}
			}},
			{reason: "rights changed", do: func() { _ = r.recheckRights(t.Context()) }, want: 1 + many + 2},
			{reason: "somebody edits the parent", want: 1 + many + 2, do: func() {
				s := newSet()
				r.edit(s, func() { s.Spec.Template.Spec.ActionType, s.Generation = "Update", 2 })
			}},
			{reason: "the parent is made anew", want: 1 + many + 2, do: func() {
				r.delete(newSet())
				s := newSet()
				s.UID, s.Generation = "another", 2
				if err := r.api.Create(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}},
		}
		for _, tc := range cases {
			before := r.denied.asked
			tc.do()
			r.settle(kindWorkSet)
			if n := r.denied.asked - before; n != tc.want {
				t.Errorf("%d questions about rights, want %d: %s", n, tc.want, tc.reason)
			}
		}
	}, far...)
}

func TestRightsChangedDuringCheckAreCheckedAgain(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
		q := newQueue()
		if err := r.kind(kindWorkSet).start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		r.denied.set("alice/store-2", true)
		r.denied.meanwhile = sync.OnceFunc(func() { _ = r.recheckRights(t.Context()) })
		if _, err := r.kind(kindWorkSet).Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"shop/all"}, q.take()); diff != "" {
			t.Errorf("who was refused before the change is looked at after it (-want +got):\n%s", diff)
		}
		r.denied.set("alice/store-2", false)
		r.settle(kindWorkSet)
		if in := r.works(); !slices.Equal(in, []string{"store-1", "store-2"}) {
			t.Errorf("works are in %v: the answer before the change is remembered", in)
		}
	})
}

func TestNewAuthorIsRecordedOnWorks(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		r.denied.set("bob/store-2", true)
		s := newSet()
		r.edit(s, func() { s.Annotations, s.Generation = bob.Annotations(requester.MCM, registered), 2 })
		r.settle(kindWorkSet)
		if by, err := requester.FromObject(r.work(p, "store-1"), requester.MCM, registered); err != nil || by.User != "bob" || len(by.Groups) > 0 {
			t.Errorf("the work is done for %+v: %v", by, err)
		}
		if diff := cmp.Diff([]string{"store-1"}, r.works()); diff != "" {
			t.Errorf("a work that the new author may not make stays (-want +got):\n%s", diff)
		}
		if got := r.set(); len(got.Clusters) != 1 || got.Forbidden != 1 {
			t.Errorf("the status is %+v", got)
		}
	})
}

func TestParentWithoutAuthorCreatesNoWork(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
		r.settle(kindWorkSet)
		s := newSet()
		r.edit(s, func() { s.Annotations = nil })
		r.settle(kindWorkSet)
		if got := r.set(); len(r.works()) != 0 || got.Status != v1alpha1.WorkFailed || !strings.Contains(got.Reason, "not recorded") {
			t.Errorf("works in %v, status %+v", r.works(), got)
		}
	})
}

func TestForeignWorkIsKept(t *testing.T) {
	other := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "store-1", Name: workName(newWorkSetParent(newSet()), "store-1"), UID: "other"}}
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.settle(kindWorkSet)
		if got := r.set().Clusters[0]; got.Type != v1alpha1.WorkFailed || got.Reason != `work "`+other.Name+`" is in the way: it is not one of this object` {
			t.Errorf("the result is %+v", got)
		}
		if w := r.work(p, "store-1"); w.UID != "other" || len(w.Annotations) > 0 {
			t.Errorf("it is changed: %+v", w)
		}
		r.delete(other)
		if parents := r.kind(kindWorkSet).blockedParents(client.ObjectKeyFromObject(other)); len(parents) != 1 {
			t.Errorf("the parents %v wait for it, want one", parents)
		}
		r.settle(kindWorkSet)
		if w := r.work(p, "store-1"); w.Annotations[v1alpha1.AnnotationOwners] != "WorkSet.shop.all" {
			t.Error("it is gone, and the work is not there")
		}
	}, other.DeepCopy())
}

func TestFailingClusterDoesNotBlockOthers(t *testing.T) {
	works := schema.GroupResource{Group: "mcm.ibm.com", Resource: "works"}
	cases := map[string]struct {
		reason  string
		err     error
		is      v1alpha1.WorkStatusType
		retried bool
	}{
		"no namespace": {
			reason: "it is made soon", err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "store-1"), is: "Processing", retried: true,
		},
		"an invalid template": {
			reason: "it is invalid until it is changed", err: apierrors.NewInvalid(schema.GroupKind{Group: works.Group, Kind: "Work"}, "w", nil), is: "Failed",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fanned(t, nil, func(t *testing.T, r *rig, p parent) {
				r.refuse = func(w client.Object) error {
					if w.GetNamespace() == "store-1" {
						return tc.err
					}
					return nil
				}
				_, err := r.kind(kindWorkSet).Reconcile(t.Context(), request)
				if (err != nil) != tc.retried {
					t.Errorf("%s: the error is %v", tc.reason, err)
				}
				got := r.set().Clusters[0]
				if got.Type != tc.is || got.Reason != tc.err.Error() {
					t.Errorf("%s: the result is %+v", tc.reason, got)
				}
				r.work(p, "store-2")
			})
		})
	}
}

func TestInvalidSelectorIsReported(t *testing.T) {
	fanned(t, func(s *v1alpha1.WorkSet) {
		s.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	}, func(t *testing.T, r *rig, _ parent) {
		r.settle(kindWorkSet)
		if got := r.set(); got.Status != v1alpha1.WorkFailed || !strings.HasPrefix(got.Reason, "spec.clusterSelector: ") {
			t.Errorf("status is %+v", got)
		}
	})
}

func TestConfigValidateRequiresFields(t *testing.T) {
	r := newRig(t)
	for name, take := range map[string]func(*Config){
		"the client":  func(c *Config) { c.Client = nil },
		"the reader":  func(c *Config) { c.Live = nil },
		"the reviews": func(c *Config) { c.Access = nil },
		"the rights":  func(c *Config) { c.Rights = nil },
	} {
		cfg := r.reconcilers[0].cfg
		take(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("it is made without %s", name)
		}
	}
}

func TestFailedReadIsRetried(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
		r.refuse = func(client.Object) error { return errors.New("boom") }
		_, err := r.kind(kindWorkSet).Reconcile(t.Context(), request)
		if err == nil || !strings.Contains(err.Error(), `cluster "store-1": boom`) {
			t.Errorf("the error is %v, want that of the first cluster", err)
		}
		r.refuse = nil
		r.settle(kindWorkSet)
		if in := r.works(); !slices.Equal(in, []string{"store-1", "store-2"}) {
			t.Errorf("works are in %v", in)
		}
	})
}
