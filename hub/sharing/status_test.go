// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// short is a condition in one line.
func short(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message), " ")
}

func TestStatusShowsClusterStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s", func(s *v1alpha1.SharedResource) { s.Spec.ClusterSelector = metav1.LabelSelector{} }))
		r.start(t)
		check := func(reason, ready string, clusters ...string) {
			t.Helper()
			r.settle()
			s := stored(t, r, sharedResource("s"))
			if got := short(s.Status.Conditions, v1alpha1.ConditionReady); got != ready {
				t.Errorf("%s: ready %q, want %q", reason, got, ready)
			}
			var got []string
			for _, c := range s.Status.Clusters {
				got = append(got, fmt.Sprintf("%s %d %d %q %s", c.Name, c.Objects, c.Conflicts, c.LastError, short(c.Conditions, v1alpha1.ConditionReady)))
			}
			if diff := cmp.Diff(clusters, got); diff != "" {
				t.Errorf("%s: clusters (-want +got):\n%s", reason, diff)
			}
		}
		const pending = "False Pending cluster: it has not answered yet"
		check("before they answer", `False ClustersNotReady cluster: cluster "c1" is not ready: it has not answered yet`,
			`c1 0 0 "" `+pending, `c2 0 0 "" `+pending)
		a, b := r.connect(t, "c1"), r.connect(t, "c2")
		a.reportState("s", wire.ShareState{Generation: 1, Objects: 3, Conflicts: 1, LastError: `cluster: object "x": no`})
		b.reportState("s", wire.ShareState{Generation: 1, Problem: wire.NewShareProblem(v1alpha1.ReasonRightsMissing, "no right to list")})
		check("once they have", `False ClustersNotReady cluster: cluster "c2" is not ready: no right to list`,
			`c1 3 1 "cluster: object \"x\": no" True Shared`, `c2 0 0 "" False RightsMissing cluster: no right to list`)
		b.reportState("s", wire.ShareState{Generation: 1, Objects: 2})
		check("all of them", "True Shared", `c1 3 1 "cluster: object \"x\": no" True Shared`, `c2 2 0 "" True Shared`)
		if s := stored(t, r, sharedResource("s")); s.Status.Objects != 5 || s.Status.Selected != 2 || s.Status.ObservedGeneration != 1 {
			t.Errorf("status %+v", s.Status)
		}
		remove(t, r, namespaceNamed("c2"))
		check("a problem of the hub", `False ClustersNotReady hub: cluster "c2" is not ready: namespace "c2" is being deleted`,
			`c1 3 1 "cluster: object \"x\": no" True Shared`, `c2 2 0 "" False NamespaceTerminating hub: namespace "c2" is being deleted`)
		edit(t, r, clusterNamed("c2"), reject)
		check("one that is not selected any more", "True Shared", `c1 3 1 "cluster: object \"x\": no" True Shared`)
		edit(t, r, clusterNamed("c1"), reject)
		check("none", "False NoClusters hub: no cluster is selected")
	})
}

func TestStatusKeepsClusterStateAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.start(t)
		a := r.connect(t, "c1")
		a.reportState("s", wire.ShareState{Generation: 1, Objects: 3})
		r.settle()
		before := stored(t, r, sharedResource("s"))
		r.stop()
		r.start(t)
		after := stored(t, r, sharedResource("s"))
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("after a restart (-before +after):\n%s", diff)
		}
	})
}

func TestStatusWritesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		r.start(t)
		a := r.connect(t, "c1")
		a.reportState("s", wire.ShareState{Generation: 1})
		r.settle()
		before, began := r.statuses.Load(), time.Now()
		for i := 0; time.Since(began) < 10*time.Second; i++ {
			a.reportState("s", wire.ShareState{Generation: 1, Objects: i})
			synctest.Wait()
			if i == 1 && r.statuses.Load() != before+1 {
				t.Errorf("the first change was written %d times", r.statuses.Load()-before)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := r.statuses.Load() - before; n < 15 || n > 21 {
			t.Errorf("%d writes in 10 s", n)
		}
		r.settle()
		before = r.statuses.Load()
		a.reportState("s", wire.ShareState{Generation: 1, Objects: int(stored(t, r, sharedResource("s")).Status.Objects)})
		r.settle()
		if r.statuses.Load() != before {
			t.Error("what changes nothing was written")
		}
	})
}

func TestRefusedStatusIsLoggedAndRetriedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sharedResource("s"))
		var logged atomic.Int64
		r.logger = funcr.New(func(_, line string) {
			if strings.Contains(line, `"msg"="Status is refused"`) && strings.Contains(line, `"sharedresource"="s"`) {
				logged.Add(1)
			}
		}, funcr.Options{})
		refusal := error(apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("SharedResource").GroupKind(), "s", nil))
		r.refusal.Store(&refusal)
		r.start(t)
		time.Sleep(time.Hour)
		if n := logged.Load(); n == 0 || n > 70 || r.statuses.Load() > 70 {
			t.Errorf("%d writes in an hour, logged %d times", r.statuses.Load(), n)
		}
		r.refusal.Store(nil)
		time.Sleep(2 * refusedStatusInterval)
		if got := stored(t, r, sharedResource("s")).Status; len(got.Conditions) == 0 {
			t.Errorf("status %+v once it is taken", got)
		}
	})
}

func TestHeldDeletionsNameTheAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		a.reportState("s", wire.ShareState{Generation: 1, Hold: &wire.Hold{Reason: v1alpha1.ReasonUnproven, Token: "t1", Message: "cluster: 7 of 9 objects are absent"}})
		r.settle()
		s := stored(t, r, sharedResource("s"))
		want := "True Unproven cluster: 7 of 9 objects are absent; to go on, annotate the SharedResource with sync.spokelet.io/confirm=t1"
		if got := short(s.Status.Clusters[0].Conditions, v1alpha1.ConditionDeletionsHeld); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		edit(t, r, s, func(s *v1alpha1.SharedResource) {
			s.Annotations = map[string]string{v1alpha1.AnnotationConfirm: " t0, t1,"}
			s.Generation--
		})
		if share, _ := a.getShare("s"); !cmp.Equal(share.Confirmed, []string{"t0", "t1"}) {
			t.Errorf("confirmed %q", share.Confirmed)
		}
		a.reportState("s", wire.ShareState{Generation: 1})
		r.settle()
		s = stored(t, r, sharedResource("s"))
		if got := short(s.Status.Clusters[0].Conditions, v1alpha1.ConditionDeletionsHeld); got != "" {
			t.Errorf("condition %q, want none", got)
		}
	})
}

func TestDecisionEventsAreRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		decided := func(numbers ...int64) (all []wire.Decided) {
			for _, n := range numbers {
				all = append(all, wire.NewDecided(n, "a", []string{"spec.size"}, wire.SharedHub))
			}
			return all
		}
		drain := func() (got []string) {
			r.settle()
			for len(r.events.Events) > 0 {
				got = append(got, <-r.events.Events)
			}
			return got
		}
		a.reportState("s", wire.ShareState{Generation: 1, Decided: decided(1, 2)})
		if got := drain(); len(got) > 0 {
			t.Errorf("what was decided before: %v", got)
		}
		a.reportState("s", wire.ShareState{Generation: 1, Decided: decided(1, 2, 3)})
		a.reportState("s", wire.ShareState{Generation: 1, Objects: 1, Decided: decided(1, 2, 3)})
		want := []string{"Warning ConflictDecided hub and cluster c1 changed the same fields, and what the hub has stays: spec.size"}
		if diff := cmp.Diff(want, drain()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		a.reportState("s", wire.ShareState{Generation: 1, Decided: []wire.Decided{wire.NewDecided(4, "none", nil, wire.SharedSpoke)}})
		if got := drain(); len(got) > 0 {
			t.Errorf("of an object that is not there: %v", got)
		}
	})
}

func TestInvalidStateIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, a := sharing(t)
		a.reportState("s", wire.ShareState{Generation: 1, Objects: -1})
		a.reportState("other", wire.ShareState{Generation: 1, Objects: 1})
		r.settle()
		s := stored(t, r, sharedResource("s"))
		if got := short(s.Status.Clusters[0].Conditions, v1alpha1.ConditionReady); got != "False Pending cluster: it has not answered yet" {
			t.Errorf("condition %q", got)
		}
	})
}

func TestValidReason(t *testing.T) {
	for text, want := range map[string]string{
		"RightsMissing": "RightsMissing", "A1": "A1", "": "Pending", "1A": "Pending", "a b": "Pending", "ä": "Pending", strings.Repeat("a", 2000): "Pending",
	} {
		if got := validReason(text); got != want {
			t.Errorf("reasonOf(%.20q): got %q, want %q", text, got, want)
		}
	}
}

func TestStatusKeepsOtherConditions(t *testing.T) {
	s := sharedResource("s")
	s.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "R"}}
	got := statusInput{}.buildStatus(s)
	want := []metav1.Condition{
		{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "R"},
		{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: 1},
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NoClusters", Message: "hub: no cluster is selected", ObservedGeneration: 1},
	}
	if diff := cmp.Diff(want, got.Conditions, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
