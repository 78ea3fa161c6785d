// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// An answer may come in the instant in which the author's right goes.
func TestLateResultDoesNotReplaceRefusal(t *testing.T) {
	w := resourceWork("w")
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	v := r.publishedView(t, managed)
	r.answerView(t, managed, podsResult)
	asked := r.views.requestsFor(managed, v.Key)[objectKeyOf(w)]
	r.access.deny("alice")
	if err := r.reviewRights(t.Context()); err != nil {
		t.Fatal(err)
	}
	processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) }) // the refusal waits to be written
	r.enqueueReport(objectKeyOf(w), report{
		uid: asked.uid, cluster: managed, viewKey: v.Key,
		outcome: outcome{generation: asked.generation, view: &wire.ViewResult{Result: json.RawMessage(`{"kind":"List","items":[]}`)}},
	})
	r.drainQueues(t)
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || !strings.HasPrefix(got.Reason, "forbidden: ") || got.Result != nil {
		t.Errorf("status %s, %q, result %t", got.Type, got.Reason, got.Result != nil)
	}
}

func TestFailureOfFormerGenerationIsReplaced(t *testing.T) {
	a := clusterAction("a", func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = "Patch" })
	r := newRig(t, a)
	r.queue.Add(objectKeyOf(a))
	processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) }) // the failure waits to be written
	a = edit(t, r, a, func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = "Create" })
	r.queue.Add(objectKeyOf(a))
	processOne(t, r.queue, func(o objectKey) error { return r.reconcileAndMark(t.Context(), o) })
	r.drainQueues(t)
	if c := meta.FindStatusCondition(stored(t, r, a).Status.Conditions, actionv1beta1.ConditionActionCompleted); c != nil {
		t.Errorf("before it was done it is %s, %s, of generation %d", c.Status, c.Reason, c.ObservedGeneration)
	}
	r.answerAction(t, managed, a, wire.ActionResult{Result: json.RawMessage(configMap)})
	c := meta.FindStatusCondition(stored(t, r, a).Status.Conditions, actionv1beta1.ConditionActionCompleted)
	if c == nil || c.Reason != actionv1beta1.ReasonActionDone {
		t.Errorf("condition %+v", c)
	}
}

func TestActionWithoutObjectClearsFormerResult(t *testing.T) {
	a := clusterAction("a")
	r := newRig(t, a)
	r.reconcileObjects(t, a)
	r.answerAction(t, managed, a, wire.ActionResult{Result: json.RawMessage(configMap)})
	if got := stored(t, r, a).Status.Result.Raw; string(got) != configMap {
		t.Fatalf("result %s", got)
	}
	a = edit(t, r, a, func(a *actionv1beta1.ManagedClusterAction) { a.Spec.ActionType = "Delete" })
	r.reconcileObjects(t, a)
	r.answerAction(t, managed, a, wire.ActionResult{})
	if got := stored(t, r, a).Status.Result.Raw; len(got) > 0 && string(got) != "null" {
		t.Errorf("after the deletion the result is %s", got)
	}
}

func TestOversizedResultIsRejected(t *testing.T) {
	w, a := resourceWork("w"), actionWork("a")
	r := newRig(t, w, a)
	r.options.maxBytes = 100
	large := json.RawMessage(`{"a":"` + strings.Repeat("b", 100) + `"}`)
	r.reconcileObjects(t, w, a)
	r.answerView(t, managed, wire.ViewResult{Result: large})
	r.answerAction(t, managed, a, wire.ActionResult{Result: large})
	if len(r.patches) > 0 || r.memory.Held() != 0 {
		t.Errorf("%d writes, %d bytes are held", len(r.patches), r.memory.Held())
	}
}

// A condition beside a large result is a small patch, after which the store writes all.
func TestKeptResultCountsTowardsWriteQuota(t *testing.T) {
	const size, burst = 64 << 10, 640 << 10
	v := clusterView("v")
	r := newRig(t, v)
	r.cfg.Writes = quota.NewWrites(quota.Rate{PerSecond: 1, Burst: burst}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
	r.reconcileObjects(t, v)
	view := r.publishedView(t, managed)
	say := func(result wire.ViewResult) {
		r.receiveViewResult(managed, resource.Resource{Key: view.Key, Generation: view.Generation, Body: mustEncode(t, result), Account: r.openAccount(t, managed, 1)})
		r.drainQueues(t)
	}
	say(wire.ViewResult{Result: json.RawMessage(`{"a":"` + strings.Repeat("b", size) + `"}`)})
	writes := 0
	for i := range 2 * burst / size {
		r.pacer.Forget(objectKeyOf(v)) // the pace of one object is another test's
		before := len(r.patches)
		say(wire.ViewResult{Refusal: wire.Refuse(wire.CauseRequest, "", strings.Repeat("x", i+1))})
		writes += len(r.patches) - before
	}
	if most := burst/size + 2; writes > most {
		t.Errorf("%d writes of %d bytes, where the budget has room for %d", writes, size, most)
	}
	if wait := r.cfg.Writes.Wait(managed); wait < time.Second {
		t.Errorf("the next write waits for %s", wait)
	}
}
