// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

// Alice may have works in store-1 alone. Beyond it are two secret clusters, of which one is
// in the north, and has a Work of the name that hers would have.
func hiding(t *testing.T, selector *metav1.LabelSelector, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in := func(region string) func(*clusterv1.ManagedCluster) {
			return func(c *clusterv1.ManagedCluster) { c.Labels = map[string]string{"region": region} }
		}
		s, v := newSet(), newView()
		s.Spec.ClusterSelector, v.Spec.ClusterSelector = selector, selector
		objects := []client.Object{s, v, cluster("store-1", in("south")), cluster("secret-1", in("north")), cluster("secret-2", in("south"))}
		for _, p := range []parent{newWorkSetParent(s), newResourceViewParent(v)} {
			objects = append(objects, &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "secret-1", Name: workName(p, "secret-1"), UID: "other"}})
		}
		r := newRig(t, objects...)
		r.denied.set("alice/secret-1", true)
		r.denied.set("alice/secret-2", true)
		test(t, r)
	})
}

// said is the JSON of all that a parent shows.
func (r *rig) said(kind string) string {
	r.t.Helper()
	var status any
	if kind == kindResourceView {
		status = r.view().Status
	} else {
		status = r.set()
	}
	raw, err := json.Marshal(status)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(raw)
}

func TestStatusOmitsForbiddenClusters(t *testing.T) {
	selectors := map[string]*metav1.LabelSelector{
		"all": {}, "the north": {MatchLabels: map[string]string{"region": "north"}}, "the south": {MatchLabels: map[string]string{"region": "south"}},
		"nowhere": {MatchLabels: map[string]string{"region": "nowhere"}},
	}
	for name, selector := range selectors {
		t.Run(name, func(t *testing.T) {
			hiding(t, selector, func(t *testing.T, r *rig) {
				for _, kind := range []string{kindWorkSet, kindResourceView} {
					r.settle(kind)
					got := r.said(kind)
					if strings.Contains(got, "secret") || !strings.Contains(got, `"forbidden":2,`) || !strings.Contains(got, "the namespaces of 2 clusters") {
						t.Errorf("a %s of %s says %s", kind, name, got)
					}
				}
			})
		})
	}
}

func TestStatusCountsForbiddenClustersOutsideSelector(t *testing.T) {
	for _, selector := range []*metav1.LabelSelector{{}, {MatchLabels: map[string]string{"region": "nowhere"}}} {
		hiding(t, selector, func(t *testing.T, r *rig) {
			r.denied.set("alice/store-1", true)
			r.settle(kindWorkSet)
			want := v1alpha1.WorkSetStatus{
				Status: "Failed", Forbidden: 3, ObservedGeneration: 1,
				Reason: `user "alice" cannot create works.mcm.ibm.com in the namespaces of 3 clusters, which are not named, selected or not`,
			}
			if diff := cmp.Diff(want, r.set()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusDropsClusterWhenRightIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newView(), cluster("store-1"), cluster("store-2"))
		p := newResourceViewParent(newView())
		r.settle(kindResourceView)
		r.answer(p, "store-2", "Completed", "", `{"a":1}`)
		r.settle(kindResourceView)
		if got := r.said(kindResourceView); !strings.Contains(got, `"results":{"store-2"`) {
			t.Fatalf("the view says %s", got)
		}
		r.denied.set("alice/store-2", true)
		if err := r.recheckRights(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.settle(kindResourceView)
		if got := r.said(kindResourceView); strings.Contains(got, "store-2") || !strings.Contains(got, `"forbidden":1,`) {
			t.Errorf("the view says %s", got)
		}
		if len(r.works()) != 2 {
			t.Error("the work is made anew when the right is back, and an action done again")
		}
	})
}

func TestStatusWithoutAuthorNamesNoCluster(t *testing.T) {
	fanned(t, func(s *v1alpha1.WorkSet) { s.Annotations = nil }, func(t *testing.T, r *rig, _ parent) {
		r.settle(kindWorkSet)
		if got := r.said(kindWorkSet); strings.Contains(got, "store-") {
			t.Errorf("the set says %s", got)
		}
	})
}

// A parent that is looked at because of a cluster, and another that is not, would tell which
// of them selects it.
func TestNewClusterEnqueuesAllParents(t *testing.T) {
	elsewhere := setNamed("shop", "elsewhere")
	elsewhere.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "nowhere"}}
	r := newRig(t, newSet(), elsewhere)
	h, q := r.kind(kindWorkSet).clusterHandler(), newQueue()
	both, one := []string{"shop/all", "shop/elsewhere"}, []string{"shop/all"}
	away := cluster("c", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	unlabelled := cluster("c", func(c *clusterv1.ManagedCluster) { c.Labels = nil })
	cases := map[string]struct {
		do   func()
		want []string
	}{
		"one that comes":       {do: func() { h.Create(t.Context(), event.CreateEvent{Object: cluster("c")}, q) }, want: both},
		"one that goes":        {do: func() { h.Delete(t.Context(), event.DeleteEvent{Object: cluster("c")}, q) }, want: both},
		"one that is accepted": {do: func() { h.Update(t.Context(), event.UpdateEvent{ObjectOld: away, ObjectNew: cluster("c")}, q) }, want: both},
		"a label that comes":   {do: func() { h.Update(t.Context(), event.UpdateEvent{ObjectOld: unlabelled, ObjectNew: cluster("c")}, q) }, want: one},
		"a label that goes":    {do: func() { h.Update(t.Context(), event.UpdateEvent{ObjectOld: cluster("c"), ObjectNew: unlabelled}, q) }, want: one},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.do()
			if diff := cmp.Diff(tc.want, q.take()); diff != "" {
				t.Errorf("parents that are looked at (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedAccessReviewWritesNoStatus(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
		r.denied.err = errors.New("boom")
		if _, err := r.kind(kindWorkSet).Reconcile(t.Context(), request); err == nil || len(r.works()) > 0 || len(r.set().Clusters) > 0 {
			t.Errorf("works in %v, status %+v: %v", r.works(), r.set(), err)
		}
		r.denied.err = nil
		r.settle(kindWorkSet)
		if len(r.works()) != 2 {
			t.Errorf("works in %v", r.works())
		}
	})
}

func TestParentsOfAuthorShareAccessReviews(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, _ parent) {
		r.denied.set("alice/elsewhere", true) // so that each cluster is asked about
		k := r.kind(kindWorkSet)
		for i := range 10 {
			s := setNamed("shop", fmt.Sprintf("set-%d", i))
			if _, err := k.clustersOf(newWorkSetParent(s), alice).check(t.Context(), alice, r.denied, []string{"store-1", "store-2"}); err != nil {
				t.Fatal(err)
			}
		}
		if r.denied.asked != 3 {
			t.Errorf("%d questions, want one about all and one about each cluster", r.denied.asked)
		}
	})
}

func TestRightIsCheckedBeforeWrite(t *testing.T) {
	fanned(t, nil, func(t *testing.T, r *rig, p parent) {
		r.denied.set("alice/elsewhere", true)
		r.settle(kindWorkSet)
		r.denied.set("alice/store-2", true)
		r.delete(r.work(p, "store-2"))
		r.settle(kindWorkSet)
		if got := r.set(); len(r.works()) != 1 || len(got.Clusters) != 1 || got.Forbidden != 1 {
			t.Errorf("works in %v, status %+v", r.works(), got)
		}
	})
}
