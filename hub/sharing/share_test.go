// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

func TestSharePublishesObjectsThenFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.api.set(widgets, widget("c1", "a", 1))
		r.api.set(widgets, widget("c2", "other", 1))
		r.start(t)
		a := r.connect(t, "c1")
		got, ok := a.getShare("s")
		fence := got.Fence
		got.Fence = ""
		want := wire.Share{
			Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", HubNamespace: "c1", SpokeNamespace: "c1",
			ToSpoke: true, ToHub: true, Winner: wire.SharedHub, StatusSubresource: true, HubUID: hubUID,
			Quota: wire.SharedSize{Objects: 1000, Bytes: 32 << 20},
		}
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("share (-want +got):\n%s", diff)
		}
		if !a.hasFence("s") {
			t.Errorf("the fence %q was not seen: %v", fence, a.objects)
		}
		o, _ := a.getObject("s/a")
		stored := r.api.get(widgets, "c1", "a")
		wantObject := publishedObject{
			SharedObject: wire.SharedObject{Version: versionOf(t, `{"spec":{"size":1}}`), Content: []byte(`{"spec":{"size":1}}`)},
			uid:          string(stored.GetUID()), generation: versionNumber(stored.GetResourceVersion()),
		}
		if diff := cmp.Diff(wantObject, o, cmp.AllowUnexported(publishedObject{})); diff != "" {
			t.Errorf("object (-want +got):\n%s", diff)
		}
		if len(a.objects) != 2 {
			t.Errorf("the agent knows %v", a.objects)
		}
		if other := r.connect(t, "c2"); len(other.shares)+len(other.objects) > 0 {
			t.Errorf("a cluster that is not selected knows %v", other.shares)
		}
	})
}

func TestOnlyChangesOfContentArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.api.set(widgets, widget("c1", "a", 1))
		r.start(t)
		a := r.connect(t, "c1")
		a.takeLog()
		before, _ := a.getObject("s/a")
		r.api.edit(t, widgets, "c1", "a", func(w *unstructured.Unstructured) {
			w.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
			w.SetFinalizers([]string{"a/b"})
		})
		r.settle()
		if seen := a.takeLog(); len(seen) > 0 {
			t.Errorf("what is not shared was told: %v", seen)
		}
		r.api.edit(t, widgets, "c1", "a", resize(2))
		r.settle()
		if diff := cmp.Diff([]string{"put a"}, a.takeLog()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if now, _ := a.getObject("s/a"); now.generation <= before.generation+1 || now.Version == before.Version {
			t.Errorf("generation %d after %d", now.generation, before.generation)
		}
	})
}

func TestObjectIsSharedWhileSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) {
			s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"share": "yes"}}
		}))
		label := func(value string) func(*unstructured.Unstructured) {
			return func(w *unstructured.Unstructured) { w.SetLabels(map[string]string{"share": value}) }
		}
		r.api.set(widgets, widget("c1", "a", 1, label("yes")))
		r.api.set(widgets, widget("c1", "b", 1, label("no")))
		r.start(t)
		a := r.connect(t, "c1")
		one, _ := a.getObject("s/a")
		other, _ := a.getObject("s/b")
		if one.Version == "" || one.Unselected || other.Version != "" || !other.Unselected {
			t.Errorf("a: %+v, b: %+v", one, other)
		}
		a.takeLog()
		r.api.edit(t, widgets, "c1", "a", label("no"))
		r.settle()
		r.api.edit(t, widgets, "c1", "b", label("yes"))
		r.settle()
		r.api.edit(t, widgets, "c1", "a", resize(5))
		r.settle()
		if diff := cmp.Diff([]string{"put a", "put b"}, a.takeLog()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		one, _ = a.getObject("s/a")
		other, _ = a.getObject("s/b")
		if one.Version != "" || !one.Unselected || one.Deleted || other.Version == "" || other.Unselected {
			t.Errorf("a: %+v, b: %+v", one, other)
		}
		first, _ := a.getShare("s")
		edit(t, r, sharedResource("s"), func(s *v1alpha1.SharedResource) { s.Spec.Selector = nil })
		if second, _ := a.getShare("s"); second.Selector != "" || second.Fence == first.Fence || !a.hasFence("s") {
			t.Errorf("share after another selector: %+v", second)
		}
		if one, _ = a.getObject("s/a"); one.Version == "" || one.Unselected {
			t.Errorf("a after another selector: %+v", one)
		}
	})
}

func relabel(c *clusterv1.ManagedCluster) { c.Labels = nil }

func reject(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }

func detach(c *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(c, time.Now()) }

func TestShareIsWithdrawnWithResourceOrSelection(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *rig){
		"deleted":      func(t *testing.T, r *rig) { remove(t, r, sharedResource("s")) },
		"not selected": func(t *testing.T, r *rig) { edit(t, r, clusterNamed("c1"), relabel) },
		"not accepted": func(t *testing.T, r *rig) { edit(t, r, clusterNamed("c1"), reject) },
		"detached":     func(t *testing.T, r *rig) { edit(t, r, clusterNamed("c1"), detach) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, sharedResource("s"))
				r.api.set(widgets, widget("c1", "a", 1))
				r.start(t)
				a := r.connect(t, "c1")
				end(t, r)
				if len(a.shares)+len(a.objects) > 0 {
					t.Errorf("the agent knows %v, %v", a.shares, a.objects)
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				if len(r.shares)+len(r.byCluster)+len(r.watches) > 0 {
					t.Errorf("%d shares and %d feeds are left", len(r.shares), len(r.watches))
				}
			})
		})
	}
}

func TestNewClusterGetsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) { s.Spec.ClusterSelector = metav1.LabelSelector{} }))
		r.api.set(widgets, widget("c3", "a", 1))
		r.start(t)
		first := r.connect(t, "c1")
		before, _ := first.getShare("s")
		for _, obj := range []func() error{
			func() error { return r.kube.Create(t.Context(), clusterNamed("c3")) },
			func() error { return r.kube.Create(t.Context(), namespaceNamed("c3")) },
		} {
			if err := obj(); err != nil {
				t.Fatal(err)
			}
			r.settle()
		}
		a := r.connect(t, "c3")
		if _, ok := a.getObject("s/a"); !ok || !a.hasFence("s") {
			t.Errorf("the agent knows %v, %v", a.shares, a.objects)
		}
		if after, _ := first.getShare("s"); after.Fence != before.Fence {
			t.Error("other clusters were read anew")
		}
	})
}

func TestRestartedHubPublishesDifferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.api.set(widgets, widget("c1", "a", 1))
		r.start(t)
		r.connect(t, "c1")
		r.stop()
		r.start(t)
		a := r.connect(t, "c1")
		if _, ok := a.getObject("s/a"); !ok || !a.hasFence("s") {
			t.Errorf("the agent knows %v", a.objects)
		}
	})
}

// Sync forgets a cluster that is removed; one of the name may come back at once.
func TestReconnectedClusterIsRepublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := sharing(t)
		r.sync.Forget("c1")
		a := r.connect(t, "c1")
		if _, ok := a.getObject("s/a"); !ok || !a.hasFence("s") {
			t.Errorf("the agent knows %v, %v", a.shares, a.objects)
		}
		generation := a.requestWrite("s/b", wire.PartObject, `{"spec":{"size":2}}`)
		r.settle()
		if o, _ := a.getObject("s/b"); o.Applied != generation {
			t.Errorf("known %+v", o)
		}
	})
}

// The watch may be behind the list of a namespace that shares came to need.
func TestLateWatchEventOfNamespaceIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) { s.Spec.ClusterSelector = metav1.LabelSelector{} }), clusterNamed("c3"))
		r.start(t)
		a := r.connect(t, "c3")
		r.api.pause()
		r.api.set(widgets, widget("c3", "gone", 1))
		r.api.remove(widgets, "c3", "gone")
		r.api.set(widgets, widget("c3", "there", 1))
		if err := r.kube.Create(t.Context(), namespaceNamed("c3")); err != nil {
			t.Fatal(err)
		}
		r.settle()
		if !a.hasFence("s") {
			t.Fatalf("the agent knows %v, %v", a.shares, a.objects)
		}
		a.takeLog()
		r.api.resume()
		r.settle()
		if seen := a.takeLog(); len(seen) > 0 {
			t.Errorf("log %v", seen)
		}
	})
}
