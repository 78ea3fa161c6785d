// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// onStage plays with an agent and one work of each API and strategy.
func onStage(t *testing.T, play func(*testing.T, *simulation, storyWork)) {
	t.Helper()
	for name, w := range map[string]storyWork{
		"a Work":                {name: "w", dialect: wire.DialectMulticluster},
		"a ManifestWork":        {name: "w", dialect: wire.DialectManifestWork},
		"a ManifestWork, apply": {name: "w", dialect: wire.DialectManifestWork, strategy: workv1.UpdateStrategyTypeServerSideApply},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &simulation{
					t: t, server: newFakeServer(), wants: map[string]resource.Resource{}, said: map[string]wire.WorkStatus{},
					choose: func(int) int { return 0 },
				}
				g.start()
				defer func() {
					g.stop()
					if t.Failed() {
						t.Logf("%s", strings.Join(g.log, "\n"))
					}
				}()
				play(t, g, w)
			})
		})
	}
}

// asks has the hub ask for a generation of a work, and waits until nothing moves.
func (g *simulation) asks(w storyWork, generation int64, change func(*wire.Work)) {
	g.want(w, generation, change)
	g.run(nil)
}

// leavesAlone does something, and fails if the agent writes anything after it.
func (g *simulation) leavesAlone(what string, do func()) {
	g.t.Helper()
	do()
	before := g.server.version
	g.run(nil)
	if after := g.server.version; after != before {
		g.t.Errorf("%s, and the agent wrote %d times", what, after-before)
	}
}

// value is what the object has, empty where there is none.
func (g *simulation) value() string {
	live := g.server.get(sharedPath)
	if live == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(live.Object, "data", "k")
	return value
}

// condition is what is said of a work.
func (g *simulation) condition(w storyWork, kind string) metav1.Condition {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := meta.FindStatusCondition(g.said[w.key()].Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// says is the list of a work's conditions.
func (g *simulation) says(w storyWork) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return text(g.said[w.key()].Conditions)
}

// suspended is a work that is suspended after a generation of it was applied.
func suspended(applied int64) func(*wire.Work) {
	return func(b *wire.Work) { b.Suspended, b.AppliedGeneration = true, applied }
}

func editsIt(g *simulation) func() {
	return meddles(g, "edits it", func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "edited", "data", "k") })
}

func TestSuspendedWorkIsUnchanged(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		g.asks(w, 1, nil)
		if g.value() != "1" || g.condition(w, wire.ConditionSuspended).Type != "" {
			t.Fatalf("before it: %q, %v", g.value(), g.says(w))
		}
		g.leavesAlone("the work is suspended", func() { g.want(w, 1, suspended(1)) })
		c := g.condition(w, wire.ConditionSuspended)
		if c.Status != metav1.ConditionTrue || c.Reason != wire.ReasonSuspended || strings.Contains(c.Message, "generation") {
			t.Errorf("suspended: %+v", c)
		}
		g.leavesAlone("the object is edited", editsIt(g))
		g.leavesAlone("the manifest changes", func() { g.want(w, 2, suspended(1)) })
		if applied, c := g.condition(w, conditionApplied), g.condition(w, wire.ConditionSuspended); applied.Status != metav1.ConditionTrue ||
			applied.ObservedGeneration != 1 || c.ObservedGeneration != 2 || !strings.Contains(c.Message, "generation 1 is the last that was applied") {
			t.Errorf("another generation: %+v and %+v", applied, c)
		}
		g.leavesAlone("the object is deleted", meddles(g, "deletes it", nil))
		if c := g.condition(w, conditionAvailable); c.Status != metav1.ConditionFalse || c.ObservedGeneration != 1 {
			t.Errorf("the object is gone, and Available is %+v", c)
		}
		g.asks(w, 2, nil)
		if g.value() != "2" || g.condition(w, wire.ConditionSuspended).Type != "" || !g.applied(w) {
			t.Errorf("after it: %q, %v", g.value(), g.says(w))
		}
	})
}

func TestDeletionWaitsWhileSuspended(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		g.asks(w, 1, nil)
		g.leavesAlone("the work is suspended and deleted", func() {
			g.want(w, 2, func(b *wire.Work) { suspended(1)(b); b.Deleting = true })
		})
		if c := g.condition(w, wire.ConditionSuspended); g.value() != "1" || !strings.Contains(c.Message, "the work is deleted") {
			t.Errorf("it is deleted: %q, %+v", g.value(), c)
		}
		if c := g.condition(w, conditionApplied); c.ObservedGeneration != 1 {
			t.Errorf("it is deleted: %+v", c)
		}
		g.asks(w, 2, func(b *wire.Work) { b.Deleting = true; b.Spec.Workload.Manifests = nil })
		if !g.said[w.key()].Finalized || g.server.get(sharedPath) != nil || g.server.get(w.anchor()) != nil {
			t.Error("it is suspended no more, and something of it is left")
		}
	})
}

func TestWorkSuspendedFromStartCreatesNothing(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		g.leavesAlone("the work is new", func() { g.want(w, 1, suspended(0)) })
		if diff := cmp.Diff([]string{"Suspended=True/SuspendedByAnnotation@1"}, g.says(w)); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		if c := g.condition(w, wire.ConditionSuspended); !strings.Contains(c.Message, "nothing of the work was applied before") {
			t.Errorf("suspended: %+v", c)
		}
		if g.server.get(w.anchor()) != nil {
			t.Error("it has a record")
		}
		g.leavesAlone("the agent is started anew", g.kill)
		g.leavesAlone("it is deleted", func() { g.want(w, 2, func(b *wire.Work) { suspended(0)(b); b.Deleting = true }) })
		g.asks(w, 3, nil)
		if g.value() != "3" || !g.applied(w) {
			t.Errorf("after it: %q, %v", g.value(), g.says(w))
		}
	})
}

// What was applied before a restart is known by the record alone, and what the hub knows
// of Applied stays there.
func TestRestartedAgentReportsSuspendedWork(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		g.asks(w, 1, nil)
		g.asks(w, 1, suspended(1))
		g.asks(w, 2, suspended(1))
		g.leavesAlone("the agent is started anew", g.kill)
		want := []string{"Available=True/ResourcesAvailable@1", "Suspended=True/SuspendedByAnnotation@2"}
		if w.dialect == wire.DialectMulticluster {
			want = []string{"Available=True/ResourcesAvailable@1", "Healthy=True/Current@1", "Suspended=True/SuspendedByAnnotation@2"}
		}
		if diff := cmp.Diff(want, g.says(w)); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		manifests := g.said[w.key()].Manifests
		if len(manifests) != 1 || meta.FindStatusCondition(manifests[0].Conditions, conditionApplied) != nil {
			t.Errorf("manifests: %+v", manifests)
		}
		g.leavesAlone("the object is deleted", meddles(g, "deletes it", nil))
		if c := g.condition(w, conditionAvailable); c.Status != metav1.ConditionFalse {
			t.Errorf("the object is gone, and Available is %+v", c)
		}
		g.asks(w, 2, nil)
		if g.value() != "2" || !g.applied(w) {
			t.Errorf("after it: %q, %v", g.value(), g.says(w))
		}
	})
}

// What the hub does not know is not suspended by it.
func TestUnknownSuspendedWorkIsEvicted(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		g.asks(w, 1, nil)
		g.asks(w, 1, suspended(1))
		g.engine.Receiver().Delete(w.key())
		for range 20 { // the grace is an hour, and a run goes on for some minutes
			g.run(nil)
		}
		if g.server.get(sharedPath) != nil || g.server.get(w.anchor()) != nil {
			t.Error("something of it is left")
		}
	})
}
