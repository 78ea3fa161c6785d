// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

// viewed runs a test over a ResourceView and three clusters.
func viewed(t *testing.T, test func(t *testing.T, r *rig, p parent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newView(), cluster("store-1"), cluster("store-2"), cluster("store-3"))
		r.settle(kindResourceView)
		test(t, r, newResourceViewParent(newView()))
	})
}

// shown are the results, by cluster.
func (r *rig) shown() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for name, raw := range r.view().Status.Results {
		out[name] = string(raw.Raw)
	}
	return out
}

func TestResourceViewShowsResults(t *testing.T) {
	viewed(t, func(t *testing.T, r *rig, p parent) {
		r.answer(p, "store-1", "Completed", "", `{"a":1}`)
		r.answer(p, "store-2", "Completed", "", `{"a":2}`)
		r.settle(kindResourceView)
		if diff := cmp.Diff(map[string]string{"store-1": `{"a":1}`, "store-2": `{"a":2}`}, r.shown()); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		want := []v1alpha1.ViewCondition{{Type: "Processing", Status: "True", Reason: "store-3: not answered yet"}}
		got := r.view().Status.Conditions
		got[0].LastUpdateTime = metav1.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		reads := r.reads.Load()
		r.answer(p, "store-1", "Completed", "", `{"a":3}`)
		r.answer(p, "store-3", "Completed", "", `{}`)
		c := cluster("store-2")
		r.delete(c)
		r.settle(kindResourceView)
		if diff := cmp.Diff(map[string]string{"store-1": `{"a":3}`, "store-3": `{}`}, r.shown()); diff != "" {
			t.Errorf("results after changes (-want +got):\n%s", diff)
		}
		if got := r.view().Status.Conditions; len(got) != 1 || got[0].Type != "Completed" || got[0].Reason != "" {
			t.Errorf("conditions after changes are %+v", got)
		}
		if n := r.reads.Load() - reads; n != 2 {
			t.Errorf("%d results were read, want the two that changed", n)
		}
	})
}

func TestUpdateTimeAloneIsNotWritten(t *testing.T) {
	viewed(t, func(t *testing.T, r *rig, p parent) {
		r.answer(p, "store-1", "Completed", "", `{"a":{"b":1,"c":2}}`)
		r.settle(kindResourceView)
		before, reads := r.view(), r.reads.Load()
		time.Sleep(time.Hour)
		r.settle(kindResourceView)
		r.restart()
		r.settle(kindResourceView)
		if diff := cmp.Diff(before, r.view()); diff != "" {
			t.Errorf("the view is written for nothing (-before +after):\n%s", diff)
		}
		if n := r.reads.Load() - reads; n != 0 {
			t.Errorf("%d results were read for nothing", n)
		}
	})
}

func TestResultsBeyondLimitAreOmitted(t *testing.T) {
	viewed(t, func(t *testing.T, r *rig, p parent) {
		large := fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", maxResults/2))
		r.answer(p, "store-1", "Completed", "", large)
		r.answer(p, "store-2", "Completed", "", large)
		r.answer(p, "store-3", "Completed", "", `{"a":"b"}`)
		r.settle(kindResourceView)
		if got := slices.Sorted(maps.Keys(r.shown())); !slices.Equal(got, []string{"store-1", "store-3"}) {
			t.Errorf("results are those of %v", got)
		}
		left := "results are left out, for all together are limited to 512 KiB: store-2"
		if c := r.view().Status.Conditions; len(c) != 1 || c[0].Type != v1alpha1.WorkCompleted || c[0].Reason != left {
			t.Errorf("conditions are %+v, want the reason %q", c, left)
		}
		reads := r.reads.Load()
		r.answer(p, "store-3", "Completed", "", `{"a":"c"}`)
		r.settle(kindResourceView)
		if n := r.reads.Load() - reads; n != 1 {
			t.Errorf("%d results were read, want the one that changed, and not the one without room", n)
		}
		r.answer(p, "store-1", "Failed", "gone", "")
		r.look(kindResourceView) // a write of its own status has nobody look again
		got := r.shown()
		if _, still := got["store-1"]; still || got["store-2"] != large || got["store-3"] != `{"a":"c"}` {
			t.Errorf("results are those of %v: room that is free again is used", slices.Sorted(maps.Keys(got)))
		}
		if c := r.view().Status.Conditions[0]; c.Type != v1alpha1.WorkFailed || c.Reason != "store-1: gone" {
			t.Errorf("the condition is %+v", c)
		}
	})
}

func TestClearedStatusIsRestored(t *testing.T) {
	viewed(t, func(t *testing.T, r *rig, p parent) {
		r.answer(p, "store-1", "Completed", "", `{"a":1}`)
		r.settle(kindResourceView)
		v := r.view()
		v.Status = v1alpha1.ResourceViewStatus{}
		if err := r.api.Status().Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		r.restart()
		r.settle(kindResourceView)
		if diff := cmp.Diff(map[string]string{"store-1": `{"a":1}`}, r.shown()); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
	})
}

func TestStripRemovesResults(t *testing.T) {
	v, s := newView(), newSet()
	v.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	v.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	v.Status.Results = map[string]runtime.RawExtension{"store-1": {Raw: []byte(`{}`)}}
	s.Status.Clusters = []v1alpha1.ClusterResult{{Name: "store-1"}}
	for want, obj := range map[client.Object]client.Object{newView(): v, newSet(): s} {
		got, err := Strip(obj)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(any(want), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("in the cache (-want +got):\n%s", diff)
		}
	}
}
