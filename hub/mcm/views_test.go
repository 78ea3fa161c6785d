// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"testing"
	"time"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func podsOf(user string) wire.View {
	return wire.View{Requester: wire.Requester{User: user}, Target: wire.Target{Resource: "pods"}, MaxBytes: 1}
}

// table is views over a hub of their own.
type table struct {
	*views

	t   *testing.T
	hub *resource.Hub
}

func newTable(t *testing.T) table {
	hub := resource.NewHub()
	hub.Publish(wire.KindView, nil)
	return table{t: t, hub: hub, views: newViews(func(cluster string) *resource.Source { return hub.Source(cluster, wire.KindView) })}
}

func (v table) ask(name, cluster string, generation int64, view wire.View) {
	v.t.Helper()
	if err := v.set(ref{Name: name}, "uid", generation, cluster, view); err != nil {
		v.t.Fatal(err)
	}
}

// published is the generation of the one view that a cluster has; 0 if it has none.
func (v table) published(cluster string) int64 {
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

func TestObjectsThatAskTheSameShareAView(t *testing.T) {
	begin := time.Now().UnixNano()
	v := newTable(t)
	v.ask("a", "c1", 1, podsOf("u"))
	first := v.published("c1")
	if first <= begin {
		t.Errorf("generation %d may be one of a hub before", first)
	}
	v.ask("a", "c1", 1, podsOf("u"))
	if again := v.published("c1"); again != first {
		t.Error("one that asks for what it has is answered again")
	}
	v.ask("b", "c1", 1, podsOf("u"))
	second := v.published("c1")
	if second <= first {
		t.Errorf("generation %d after %d: nobody answers the second", second, first)
	}
	key, _, err := encodeView(podsOf("u"))
	if err != nil {
		t.Fatal(err)
	}
	if by := v.by("c1", key); len(by) != 2 || v.by("c2", key) != nil || v.by("c1", "other") != nil {
		t.Errorf("asked by %v", by)
	}
	v.remove(ref{Name: "a"})
	if left := v.published("c1"); left != second {
		t.Errorf("generation %d: those who stay are not answered again", left)
	}
	v.remove(ref{Name: "a"})
	v.remove(ref{Name: "b"})
	if v.published("c1") != 0 || len(v.asks) != 0 || len(v.byCluster) != 0 {
		t.Errorf("nobody asks any more: %+v, %v", v.asks, v.byCluster)
	}
}

func TestWhoAsksSomethingElseLeavesTheFirst(t *testing.T) {
	tests := map[string]struct {
		reason     string
		generation int64
		cluster    string
		view       wire.View
		c1, c2     bool
	}{
		"another question":        {reason: "the first is nobody's", generation: 2, cluster: "c1", view: podsOf("v"), c1: true},
		"another cluster":         {reason: "the first is nobody's", generation: 2, cluster: "c2", view: podsOf("u"), c2: true},
		"the same, and a new one": {reason: "its status is of another generation", generation: 2, cluster: "c1", view: podsOf("u"), c1: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := newTable(t)
			v.ask("a", "c1", 1, podsOf("u"))
			first := v.published("c1")
			v.ask("a", tc.cluster, tc.generation, tc.view)
			if (v.published("c1") != 0) != tc.c1 || (v.published("c2") != 0) != tc.c2 {
				t.Errorf("%s: c1 has %d, c2 has %d", tc.reason, v.published("c1"), v.published("c2"))
			}
			if now := max(v.published("c1"), v.published("c2")); now <= first {
				t.Errorf("%s: generation %d after %d", tc.reason, now, first)
			}
			if a, _ := v.asked(ref{Name: "a"}); a.generation != 2 || a.cluster != tc.cluster {
				t.Errorf("%s: it asks %+v", tc.reason, a)
			}
		})
	}
}

func TestAViewIsAnsweredAgainWhenItsResultWasGivenUp(t *testing.T) {
	v := newTable(t)
	v.ask("a", "c1", 1, podsOf("u"))
	first := v.published("c1")
	if err := v.renew(ref{Name: "a"}); err != nil || v.published("c1") <= first {
		t.Errorf("%v, generation %d after %d", err, v.published("c1"), first)
	}
	if err := v.renew(ref{Name: "b"}); err != nil {
		t.Errorf("one that asks nothing: %v", err)
	}
}

func TestViewsComeBackToANewSource(t *testing.T) {
	v := newTable(t)
	v.ask("a", "c1", 1, podsOf("u"))
	before := v.published("c1")
	v.hub.Forget("c1")
	v.republish("c1")
	v.republish("c2")
	if now := v.published("c1"); now != before {
		t.Errorf("generation %d, want %d: the agent may have answered it", now, before)
	}
}
