// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestViewResultIsWrittenToAllRequests(t *testing.T) {
	a, b := resourceWork("a"), resourceWork("b", func(w *v1alpha1.Work) { w.Namespace = "team"; w.Spec.Scope.Mode = "Periodic" })
	r := newRig(t, a, b)
	r.reconcileObjects(t, a, b)
	r.answerView(t, managed, podsResult)
	for obj, want := range map[*v1alpha1.Work]v1alpha1.WorkStatusType{a: v1alpha1.WorkCompleted, b: v1alpha1.WorkProcessing} {
		got := stored(t, r, obj).Status
		if got.Type != want || got.Result == nil || got.ObservedGeneration != 1 {
			t.Errorf("%s: %+v", obj.Name, got)
		}
	}
	if held := r.memory.Held(); held != 0 {
		t.Errorf("%d bytes are held after both were written", held)
	}
}

func TestUnchangedResultIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, v := resourceWork("w"), clusterView("v")
		r := newRig(t, w, v)
		r.reconcileObjects(t, w)
		r.answerView(t, managed, podsResult)
		first := stored(t, r, w.DeepCopy())
		for _, again := range []string{`{"items":[{"kind":"Pod"}],"kind":"List"}`, ` {"kind":"List", "items":[{"kind":"Pod"}]}`} {
			<-time.After(time.Minute)
			r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(again)})
			r.restart(t)
			r.reconcileObjects(t, w)
			r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(again)})
		}
		if got := stored(t, r, w); got.ResourceVersion != first.ResourceVersion || len(r.patches) != 1 {
			t.Errorf("version %s after %s, writes %v", got.ResourceVersion, first.ResourceVersion, r.patches)
		}
		r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(`{"kind":"List","items":[]}`)})
		got := stored(t, r, w)
		if diff := cmp.Diff(`{"items":[],"kind":"List"}`, string(got.Status.Result.Raw)); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if !got.Status.LastUpdateTime.After(first.Status.LastUpdateTime.Time) {
			t.Errorf("updated at %s, before at %s", got.Status.LastUpdateTime, first.Status.LastUpdateTime)
		}
	})
}

// A merge would leave members of the former result.
func TestResultReplacesFormerResult(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(`{"a":{"b":1},"c":null}`)})
	r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(`{"a":{"d":1}}`)})
	if got := string(stored(t, r, w).Status.Result.Raw); got != `{"a":{"d":1}}` {
		t.Errorf("result %s", got)
	}
	r.answerView(t, managed, wire.ViewResult{Refusal: wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, "no")})
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || got.Result != nil {
		t.Errorf("after a refusal %+v", got)
	}
}

func TestFailedManagedClusterViewKeepsResult(t *testing.T) {
	v := clusterView("v")
	r := newRig(t, v)
	r.reconcileObjects(t, v)
	condition := func() metav1.Condition {
		c := meta.FindStatusCondition(stored(t, r, v).Status.Conditions, viewv1beta1.ConditionViewProcessing)
		if c == nil {
			t.Fatal("no condition")
		}
		return *c
	}
	r.answerView(t, managed, wire.ViewResult{Refusal: wire.Refuse(wire.CauseRequest, "", "not found")})
	if c := condition(); c.Status != metav1.ConditionFalse || c.Reason != viewv1beta1.ReasonGetResourceFailed || c.ObservedGeneration != 1 {
		t.Errorf("at first: %+v", c)
	}
	r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(pod)})
	if c := condition(); c.Status != metav1.ConditionTrue || c.Reason != viewv1beta1.ReasonGetResource {
		t.Errorf("then: %+v", c)
	}
	r.answerView(t, managed, wire.ViewResult{Refusal: wire.Refuse(wire.CauseRequest, "", "not found")})
	if c := condition(); c.Status != metav1.ConditionFalse || string(stored(t, r, v).Status.Result.Raw) != pod {
		t.Errorf("at last: %+v, result %s", c, v.Status.Result.Raw)
	}
	r.restart(t)
	r.reconcileObjects(t, v)
	writes := len(r.patches)
	r.answerView(t, managed, wire.ViewResult{Refusal: wire.Refuse(wire.CauseRequest, "", "not found")})
	if len(r.patches) != writes {
		t.Errorf("after a restart it is written again: %v", r.patches[writes:])
	}
	r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(pod)})
	if c := condition(); c.Status != metav1.ConditionTrue || string(stored(t, r, v).Status.Result.Raw) != pod {
		t.Errorf("the same object again: %+v, result %s", c, v.Status.Result.Raw)
	}
}

func TestManagedClusterActionIsDeletedAfterMinute(t *testing.T) {
	for name, result := range map[string]wire.ActionResult{
		"done":     {},
		"not done": {Refusal: wire.Refuse(wire.CauseRequest, "", "it exists")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := clusterAction("a")
				r := newRig(t, a)
				there := func() bool { return r.api.Get(t.Context(), client.ObjectKeyFromObject(a), a) == nil }
				r.reconcileObjects(t, a)
				<-time.After(time.Hour)
				r.drainQueues(t)
				if !there() {
					t.Fatal("it went before it was done")
				}
				r.answerAction(t, managed, a, result)
				<-time.After(58 * time.Second)
				synctest.Wait()
				r.drainQueues(t)
				if !there() {
					t.Fatal("it went after 58 s")
				}
				if name == "done" { // whoever does it again wants to read the result
					a = edit(t, r, a, func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = "Update" })
					r.reconcileObjects(t, a)
					r.answerAction(t, managed, a, result)
					<-time.After(58 * time.Second)
					synctest.Wait()
					r.drainQueues(t)
					if !there() {
						t.Fatal("one that was done again went after 58 s")
					}
				}
				<-time.After(4 * time.Second)
				synctest.Wait()
				r.drainQueues(t)
				if there() {
					t.Error("it is there after 62 s")
				}
				r.queue.ShutDown()
				r.results.ShutDown()
			})
		})
	}
}

func TestInvalidManagedClusterActionIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := clusterAction("a", func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = "Patch" })
		r := newRig(t, a)
		r.reconcileObjects(t, a)
		c := meta.FindStatusCondition(stored(t, r, a).Status.Conditions, actionv1beta1.ConditionActionCompleted)
		if c == nil || c.Reason != actionv1beta1.ReasonActionTypeInvalid || len(r.patches) != 1 {
			t.Fatalf("condition %+v, writes %v", c, r.patches)
		}
		r.restart(t)
		r.reconcileObjects(t, a)
		<-time.After(62 * time.Second)
		synctest.Wait()
		r.drainQueues(t)
		if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(a), a); !apierrors.IsNotFound(err) {
			t.Errorf("after 62 s: %v", err)
		}
		r.queue.ShutDown()
		r.results.ShutDown()
	})
}

func TestActionWarningsAreRecordedAsEvents(t *testing.T) {
	a := actionWork("a")
	r := newRig(t, a)
	r.reconcileObjects(t, a)
	result := wire.ActionResult{Warnings: []string{"extensions/v1beta1 is served no more", "100%s"}}
	r.answerAction(t, managed, a, result)
	r.answerAction(t, managed, a, result)
	var got []string
	for len(r.events.Events) > 0 {
		got = append(got, <-r.events.Events)
	}
	if len(got) != 2 || !strings.Contains(got[0], "Warning") || !strings.Contains(got[0], "extensions/v1beta1") || !strings.Contains(got[1], "100%s") {
		t.Errorf("events %q", got)
	}
}

func TestLargePendingResultIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := resourceWork("w")
		r := newRig(t, w)
		r.cfg.Writes = quota.NewWrites(quota.Rate{PerSecond: 100, Burst: 10}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		r.reconcileObjects(t, w)
		large := func(b string) wire.ViewResult {
			return wire.ViewResult{Result: json.RawMessage(`{"a":"` + strings.Repeat(b, maxPendingResult) + `"}`)}
		}
		r.answerView(t, managed, large("b"))
		asked := r.publishedView(t, managed)
		r.answerView(t, managed, large("c"))
		if held := r.memory.Held(); held != 0 {
			t.Errorf("%d bytes are held while it waits", held)
		}
		if now := r.publishedView(t, managed); now != asked {
			t.Error("it is asked for again at once")
		}
		<-time.After(5 * time.Minute)
		synctest.Wait()
		r.drainQueues(t)
		if now := r.publishedView(t, managed); now.Generation <= asked.Generation {
			t.Fatal("it is not asked for again")
		}
		r.answerView(t, managed, large("d"))
		if got := string(stored(t, r, w).Status.Result.Raw); !strings.HasPrefix(got, `{"a":"d`) {
			t.Errorf("result %.10s", got)
		}
		r.results.ShutDown()
	})
}

func TestLatestSmallPendingResultIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, own := resourceWork("w"), actionWork("own", func(w *v1alpha1.Work) { w.Spec.ActionType = "odd" })
		r := newRig(t, w, own)
		r.cfg.Writes = quota.NewWrites(quota.Rate{PerSecond: 100, Burst: 10}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		r.reconcileObjects(t, w)
		for i := range 10 {
			r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(fmt.Sprintf(`{"a":%d}`, i))})
		}
		if len(r.patches) != 1 {
			t.Errorf("written %d times", len(r.patches))
		}
		if held := r.memory.Held(); held != 1 {
			t.Errorf("%d bytes are held, want those of the latest", held)
		}
		r.reconcileObjects(t, own) // what the hub itself has to say does not wait for the cluster's budget
		if got := stored(t, r, own).Status.Type; got != v1alpha1.WorkFailed {
			t.Errorf("the hub's own word is not written: %s", got)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		r.drainQueues(t)
		if got := string(stored(t, r, w).Status.Result.Raw); got != `{"a":9}` || r.memory.Held() != 0 {
			t.Errorf("result %s, %d bytes are held", got, r.memory.Held())
		}
		r.results.ShutDown()
	})
}

func TestFrequentViewResultsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := resourceWork("w")
		r := newRig(t, w)
		r.reconcileObjects(t, w)
		for i := range 1000 {
			r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(fmt.Sprintf(`{"a":%d}`, i))})
		}
		if n := len(r.patches); n > 100 {
			t.Errorf("%d writes at once", n)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		r.drainQueues(t)
		if got := string(stored(t, r, w).Status.Result.Raw); got != `{"a":999}` {
			t.Errorf("result %s", got)
		}
		r.results.ShutDown()
	})
}

// The answer comes, and the session ends before it is written.
func TestPendingResultSurvivesDisconnect(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	v := r.publishedView(t, managed)
	r.receiveViewResult(managed, resource.Resource{Key: v.Key, Generation: v.Generation, Body: mustEncode(t, podsResult), Account: r.openAccount(t, managed, 1)})
	r.sessions.set(managed, false)
	r.queue.Add(objectKeyOf(w))
	processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) })
	r.drainQueues(t)
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkCompleted {
		t.Errorf("%+v", got)
	}
	// And the other way round: the look began before the answer was written.
	r.enqueueReport(objectKeyOf(w), report{uid: w.UID, cluster: managed, fromHub: true, outcome: outcome{waiting: "away"}})
	r.drainQueues(t)
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkCompleted || r.memory.Held() != 0 {
		t.Errorf("%+v, %d bytes are held", got, r.memory.Held())
	}
}

func TestFailedWriteIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a := resourceWork("w"), actionWork("a")
		r := newRig(t, w, a)
		r.reconcileObjects(t, w, a)
		r.refused = func() error { return errors.New("boom") }
		large := json.RawMessage(`{"a":"` + strings.Repeat("b", maxPendingResult) + `"}`)
		r.answerView(t, managed, wire.ViewResult{Result: large})
		r.answerAction(t, managed, a, wire.ActionResult{Result: large})
		if held := r.memory.Held(); held != 1 {
			t.Errorf("%d bytes are held, want the action's alone: the view's can be asked for again", held)
		}
		asked := r.publishedView(t, managed)
		r.refused = nil
		<-time.After(time.Minute)
		synctest.Wait()
		r.drainQueues(t)
		if now := r.publishedView(t, managed); now.Generation <= asked.Generation {
			t.Error("the view is not asked for again")
		}
		if got := stored(t, r, a).Status; got.Type != v1alpha1.WorkCompleted || got.Result == nil || r.memory.Held() != 0 {
			t.Errorf("the action's %+v, %d bytes are held", got.Type, r.memory.Held())
		}
		r.queue.ShutDown()
		r.results.ShutDown()
	})
}

// Some results no API server takes. That is said once, and does not go on for ever.
func TestRefusedResultIsOmitted(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Work"}, "w", nil)
	for name, refusal := range map[string]error{
		"refused as invalid":   invalid,
		"refused as too large": apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"refused as no JSON":   apierrors.NewBadRequest("cannot decode"),
		"no number":            nil,
	} {
		t.Run(name, func(t *testing.T) {
			w, a := resourceWork("w"), actionWork("a")
			r := newRig(t, w, a)
			r.reconcileObjects(t, w, a)
			result := json.RawMessage(configMap)
			if refusal == nil {
				result = json.RawMessage(`{"a":1e999}`)
			}
			refuse := func() {
				if refusal != nil {
					r.refused = func() error { r.refused = nil; return refusal }
				}
			}
			refuse()
			r.answerView(t, managed, wire.ViewResult{Result: result})
			refuse()
			r.answerAction(t, managed, a, wire.ActionResult{Result: result})
			if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || got.Reason != "the hub cannot store the result" {
				t.Errorf("view: %+v", got)
			}
			if got := stored(t, r, a).Status; got.Type != v1alpha1.WorkCompleted || got.ObservedGeneration != 1 || got.Result != nil || got.Reason == "" {
				t.Errorf("action: %+v", got)
			}
			if len(r.publishedActions(managed)) != 0 || r.memory.Held() != 0 {
				t.Errorf("published %v, %d bytes are held", r.publishedActions(managed), r.memory.Held())
			}
		})
	}
}

func TestActionResultTooLargeBesideTemplateIsOmitted(t *testing.T) {
	a := actionWork("a")
	large := `{"a":"` + strings.Repeat("b", statuswriter.MaxObjectBytes/2) + `"}`
	a.Spec.KubeWork.ObjectTemplate.Raw = []byte(large)
	r := newRig(t, a)
	r.options.maxBytes = statuswriter.MaxObjectBytes
	r.reconcileObjects(t, a)
	r.answerAction(t, managed, a, wire.ActionResult{Result: json.RawMessage(large)})
	if got := stored(t, r, a).Status; got.Type != v1alpha1.WorkCompleted || got.Result != nil || !strings.Contains(got.Reason, "left out") {
		t.Errorf("%s, %s, result %t", got.Type, got.Reason, got.Result != nil)
	}
}

func TestReportOnDeletedObjectIsDropped(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	v := r.publishedView(t, managed)
	r.receiveViewResult(managed, resource.Resource{Key: v.Key, Body: mustEncode(t, podsResult), Account: r.openAccount(t, managed, 1)})
	if err := r.api.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	r.drainQueues(t)
	if r.memory.Held() != 0 || len(r.pending) != 0 {
		t.Errorf("%d bytes are held, %d reports", r.memory.Held(), len(r.pending))
	}
}

func TestResultOfFormerRequestIsDropped(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	v := r.publishedView(t, managed)
	r.receiveViewResult(managed, resource.Resource{Key: v.Key, Generation: v.Generation, Body: mustEncode(t, podsResult), Account: r.openAccount(t, managed, 1)})
	edit(t, r, w, func(w *v1alpha1.Work) { w.Spec.Scope.ResourceType = "nodes" })
	r.reconcileObjects(t, w)
	if got := stored(t, r, w).Status; got.Type != "" || r.memory.Held() != 0 {
		t.Errorf("nodes were asked for, and there are %s; %d bytes are held", got.Result.Raw, r.memory.Held())
	}
}

// The cache may not have seen our own last write: beside an older state, an answer that
// takes the last one back would look like no change.
func TestStaleCacheLosesNoResult(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	r.answerView(t, managed, podsResult)
	r.lagging = stored(t, r, w.DeepCopy())
	r.answerView(t, managed, wire.ViewResult{Result: json.RawMessage(`{}`)})
	r.answerView(t, managed, podsResult)
	if got := string(stored(t, r, w.DeepCopy()).Status.Result.Raw); !strings.Contains(got, "Pod") {
		t.Errorf("result %s", got)
	}
	r.lagging = nil
	r.answerView(t, managed, podsResult)
	if r.ownWrites.Len() != 0 || len(r.patches) != 3 {
		t.Errorf("%d writes are remembered after the cache has caught up, writes %v", r.ownWrites.Len(), r.patches)
	}
}
