// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"testing"
	"time"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func newPodsView(user string) wire.View {
	return wire.View{Requester: wire.Requester{User: user}, Target: wire.Target{Resource: "pods"}, MaxBytes: 1}
}

// viewRig is views over a hub of their own.
type viewRig struct {
	*viewIndex

	t   *testing.T
	hub *resource.Hub
}

func newViewRig(t *testing.T) viewRig {
	hub := resource.NewHub()
	hub.Publish(wire.KindView, nil)
	return viewRig{t: t, hub: hub, viewIndex: newViewIndex(func(cluster string) *resource.Source { return hub.Source(cluster, wire.KindView) })}
}

func (v viewRig) request(name, cluster string, generation int64, view wire.View) {
	v.t.Helper()
	if err := v.set(objectKey{Name: name}, "uid", generation, cluster, view); err != nil {
		v.t.Fatal(err)
	}
}

// generation is the generation of the one view that a cluster has; 0 if it has none.
func (v viewRig) generation(cluster string) int64 {
	v.t.Helper()
	keys := v.hub.Source(cluster, wire.KindView).Keys()
	if len(keys) == 0 {
		return 0
	}
	if len(keys) > 1 {
		v.t.Fatalf("cluster %s has the views %v", cluster, keys)
	}
	at, _ := v.hub.Source(cluster, wire.KindView).Ref(keys[0])
	return at.Generation
}

func TestEqualRequestsShareOneView(t *testing.T) {
	begin := time.Now().UnixNano()
	v := newViewRig(t)
	v.request("a", "c1", 1, newPodsView("u"))
	first := v.generation("c1")
	if first <= begin {
		t.Errorf("generation %d may be one of a hub before", first)
	}
	v.request("a", "c1", 1, newPodsView("u"))
	if again := v.generation("c1"); again != first {
		t.Error("one that asks for what it has is answered again")
	}
	v.request("b", "c1", 1, newPodsView("u"))
	second := v.generation("c1")
	if second <= first {
		t.Errorf("generation %d after %d: nobody answers the second", second, first)
	}
	key, _, err := encodeView(newPodsView("u"))
	if err != nil {
		t.Fatal(err)
	}
	if by := v.requestsFor("c1", key); len(by) != 2 || v.requestsFor("c2", key) != nil || v.requestsFor("c1", "other") != nil {
		t.Errorf("asked by %v", by)
	}
	v.delete(objectKey{Name: "a"})
	if left := v.generation("c1"); left != second {
		t.Errorf("generation %d: those who stay are not answered again", left)
	}
	v.delete(objectKey{Name: "a"})
	v.delete(objectKey{Name: "b"})
	if v.generation("c1") != 0 || len(v.requests) != 0 || len(v.byCluster) != 0 {
		t.Errorf("nobody asks any more: %+v, %v", v.requests, v.byCluster)
	}
}

func TestChangedRequestReplacesView(t *testing.T) {
	tests := map[string]struct {
		reason     string
		generation int64
		cluster    string
		view       wire.View
		c1, c2     bool
	}{
		"another question":        {reason: "the first is nobody's", generation: 2, cluster: "c1", view: newPodsView("v"), c1: true},
		"another cluster":         {reason: "the first is nobody's", generation: 2, cluster: "c2", view: newPodsView("u"), c2: true},
		"the same, and a new one": {reason: "its status is of another generation", generation: 2, cluster: "c1", view: newPodsView("u"), c1: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := newViewRig(t)
			v.request("a", "c1", 1, newPodsView("u"))
			first := v.generation("c1")
			v.request("a", tc.cluster, tc.generation, tc.view)
			if (v.generation("c1") != 0) != tc.c1 || (v.generation("c2") != 0) != tc.c2 {
				t.Errorf("%s: c1 has %d, c2 has %d", tc.reason, v.generation("c1"), v.generation("c2"))
			}
			if now := max(v.generation("c1"), v.generation("c2")); now <= first {
				t.Errorf("%s: generation %d after %d", tc.reason, now, first)
			}
			if a, _ := v.get(objectKey{Name: "a"}); a.generation != 2 || a.cluster != tc.cluster {
				t.Errorf("%s: it asks %+v", tc.reason, a)
			}
		})
	}
}

func TestRenewPublishesNewGeneration(t *testing.T) {
	v := newViewRig(t)
	v.request("a", "c1", 1, newPodsView("u"))
	first := v.generation("c1")
	if err := v.renew(objectKey{Name: "a"}); err != nil || v.generation("c1") <= first {
		t.Errorf("%v, generation %d after %d", err, v.generation("c1"), first)
	}
	if err := v.renew(objectKey{Name: "b"}); err != nil {
		t.Errorf("one that asks nothing: %v", err)
	}
}

func TestRepublishFillsNewSource(t *testing.T) {
	v := newViewRig(t)
	v.request("a", "c1", 1, newPodsView("u"))
	before := v.generation("c1")
	v.hub.Forget("c1")
	v.republish("c1")
	v.republish("c2")
	if now := v.generation("c1"); now != before {
		t.Errorf("generation %d, want %d: the agent may have answered it", now, before)
	}
}
