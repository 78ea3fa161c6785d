// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestViewResultOfForeignClusterIsRejected(t *testing.T) {
	tests := map[string]struct {
		reason  string
		cluster string
		key     func(own string) string
		body    string
		written bool
	}{
		"its own":               {reason: "that is its business", cluster: managed, body: `{"result":{}}`, written: true},
		"another cluster's":     {reason: "a spoke is not trusted with others", cluster: "c2", body: `{"result":{}}`},
		"one that nobody asks":  {reason: "what an agent makes us hold is bounded", cluster: managed, key: func(string) string { return strings.Repeat("0", 64) }, body: `{"result":{}}`},
		"an action's":           {reason: "that is another kind", cluster: managed, key: func(string) string { return "mcm/c1/w" }, body: `{"result":{}}`},
		"what nobody can read":  {reason: "garbage is dropped", cluster: managed, body: `{"result":[]}`},
		"nothing":               {reason: "garbage is dropped", cluster: managed},
		"a refusal of no cause": {reason: "garbage is dropped", cluster: managed, body: `{"refusal":{"message":"m"}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := resourceWork("w")
			r := newRig(t, w)
			r.handleCluster(clusterNamed("c2"), changedEvent)
			r.reconcileObjects(t, w)
			key := r.publishedView(t, managed).Key
			if tc.key != nil {
				key = tc.key(key)
			}
			r.receiveViewResult(tc.cluster, resource.Resource{Key: key, Generation: 1, Body: []byte(tc.body), Account: r.openAccount(t, tc.cluster, 1)})
			r.drainQueues(t)
			if got := stored(t, r, w).Status.Type != ""; got != tc.written {
				t.Errorf("%s: written %t", tc.reason, got)
			}
			if held := r.memory.Held(); held != 0 || len(r.pending) != 0 {
				t.Errorf("%s: %d bytes are held, %d reports", tc.reason, held, len(r.pending))
			}
		})
	}
}

func TestActionResultOfForeignClusterIsRejected(t *testing.T) {
	tests := map[string]struct {
		reason, cluster, key, uid, body string
		generation                      int64
		written                         bool
	}{
		"its own":               {reason: "that is its business", cluster: managed, key: "mcm/c1/a", uid: "uid-a", generation: 1, body: `{}`, written: true},
		"another cluster's":     {reason: "a spoke is not trusted with others", cluster: "c2", key: "mcm/c1/a", uid: "uid-a", generation: 1, body: `{}`},
		"an earlier object's":   {reason: "the name was taken again", cluster: managed, key: "mcm/c1/a", uid: "uid-before", generation: 1, body: `{}`},
		"an earlier generation": {reason: "the spec is another", cluster: managed, key: "mcm/c1/a", uid: "uid-a", body: `{}`},
		"a later generation":    {reason: "it would never be done", cluster: managed, key: "mcm/c1/a", uid: "uid-a", generation: 2, body: `{}`},
		"one that is no action": {reason: "a view is answered elsewhere", cluster: managed, key: "mcm/c1/w", uid: "uid-w", generation: 1, body: `{}`},
		"one that is not here":  {reason: "what an agent makes us hold is bounded", cluster: managed, key: "mcm/c1/x", uid: "uid-a", generation: 1, body: `{}`},
		"no key at all":         {reason: "garbage is dropped", cluster: managed, key: "a", uid: "uid-a", generation: 1, body: `{}`},
		"what nobody can read":  {reason: "garbage is dropped", cluster: managed, key: "mcm/c1/a", uid: "uid-a", generation: 1, body: `[]`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a, w := actionWork("a"), resourceWork("w")
			r := newRig(t, a, w)
			r.handleCluster(clusterNamed("c2"), changedEvent)
			r.reconcileObjects(t, a, w)
			r.receiveActionResult(tc.cluster, resource.Resource{
				Key: tc.key, UID: tc.uid, Generation: tc.generation, Body: []byte(tc.body), Account: r.openAccount(t, tc.cluster, 1),
			})
			r.drainQueues(t)
			if got := stored(t, r, a).Status.Type != ""; got != tc.written || stored(t, r, w).Status.Type != "" {
				t.Errorf("%s: written %t", tc.reason, got)
			}
			if held := r.memory.Held(); held != 0 || len(r.pending) != 0 {
				t.Errorf("%s: %d bytes are held, %d reports", tc.reason, held, len(r.pending))
			}
		})
	}
}

// A work leaves a cluster, whose agent guesses the next generation: between the new spec
// and our look at it the action is still published there.
func TestResultOfFormerClusterIsRejected(t *testing.T) {
	a := actionWork("a")
	r := newRig(t, a)
	r.reconcileObjects(t, a)
	next := edit(t, r, a, func(w *v1alpha1.Work) { w.Spec.Cluster.Name = "c2" })
	r.enqueueReport(objectKeyOf(a), report{uid: next.UID, cluster: managed, outcome: outcome{generation: next.Generation, action: &wire.ActionResult{}}})
	processOne(t, r.results, func(o objectKey) error { return r.writeReport(t.Context(), o) })
	if got := stored(t, r, a).Status; got.Type != "" {
		t.Errorf("written %+v", got)
	}
}

func TestInvalidResultsAreLoggedAtLimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := 0
		w := resourceWork("w")
		r := newRig(t, w)
		r.cfg.Logger = funcr.New(func(_, _ string) { lines++ }, funcr.Options{})
		r.reconcileObjects(t, w)
		for range 1000 {
			r.receiveViewResult(managed, resource.Resource{Key: r.publishedView(t, managed).Key, Body: []byte(`{`)})
			r.receiveActionResult(managed, resource.Resource{Key: "a", Body: []byte(`{`)})
		}
		if lines == 0 || lines > 20 {
			t.Errorf("%d lines of 2000 mistakes", lines)
		}
	})
}
