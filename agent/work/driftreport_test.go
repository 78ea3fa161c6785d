// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/api/wire"
)

func reporting(b *wire.Work) { b.ReportDrift = true }

// drift is what is said of the first manifest of a work, as "status/reason: message".
func (g *simulation) drift(w storyWork) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.said[w.key()].Manifests {
		if c := meta.FindStatusCondition(m.Conditions, wire.ConditionDrifted); c != nil {
			return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// somebodyMakesIt makes the object with a value that no manifest has.
func (g *simulation) somebodyMakesIt() {
	g.server.do(request{
		method: http.MethodPost, path: path.Dir(sharedPath), query: map[string][]string{"fieldManager": {"kubectl"}},
		body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared","namespace":"n"},"data":{"k":"theirs"}}`),
	})
}

const (
	sayMissing = "True/ObjectMissing: The object does not exist"
	sayDiffers = "True/FieldsDiffer: Fields that differ from the manifest: data.k"
	saySame    = "False/NoDifference: The object is as the manifest says"
)

func TestDriftReportWritesAndOwnsNothing(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		step := func(what string, do func(), want string, status metav1.ConditionStatus) {
			t.Helper()
			g.leavesAlone(what, do)
			if got := g.drift(w); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
			c := g.condition(w, wire.ConditionDrifted)
			if c.Status != status || !wire.IsDriftReport(c) || !strings.Contains(c.Message, "nothing is written") {
				t.Errorf("%s: the work says %+v", what, c)
			}
			if applied := g.condition(w, conditionApplied); applied.Type != "" {
				t.Errorf("%s: %+v", what, applied)
			}
		}
		step("nothing is there", func() { g.want(w, 1, reporting) }, sayMissing, metav1.ConditionTrue)
		step("somebody makes it", g.somebodyMakesIt, sayDiffers, metav1.ConditionTrue)
		step("somebody edits it as the manifest says", meddles(g, "edits it", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "1", "data", "k")
		}), saySame, metav1.ConditionFalse)
		step("the manifest changes", func() { g.want(w, 2, reporting) }, sayDiffers, metav1.ConditionTrue)
		step("the agent is started anew", g.kill, sayDiffers, metav1.ConditionTrue)
		step("somebody deletes it", meddles(g, "deletes it", nil), sayMissing, metav1.ConditionTrue)
		if g.server.get(w.anchor()) != nil {
			t.Error("it has a record")
		}
		g.somebodyMakesIt()
		g.leavesAlone("it is deleted", func() { g.want(w, 3, func(b *wire.Work) { reporting(b); b.Deleting = true }) })
		g.engine.reportStatus(w.key()) // as an event of the object that came before has it done
		if !g.said[w.key()].Finalized || g.value() != "theirs" {
			t.Errorf("finalized %t, %q is there", g.said[w.key()].Finalized, g.value())
		}
	})
}

func TestDriftReportKeepsOwnershipOfAppliedObjects(t *testing.T) {
	onStage(t, func(t *testing.T, g *simulation, w storyWork) {
		g.asks(w, 1, nil)
		g.leavesAlone("it is compared", func() { g.want(w, 1, reporting) })
		if got := g.drift(w); got != saySame {
			t.Errorf("it was applied: %q", got)
		}
		g.leavesAlone("the object is edited", editsIt(g))
		if got := g.drift(w); got != sayDiffers || !g.owns(w, g.server.get(sharedPath)) {
			t.Errorf("it is edited: %q", got)
		}
		g.leavesAlone("it is suspended besides", func() { g.want(w, 1, func(b *wire.Work) { reporting(b); suspended(1)(b) }) })
		if got := g.drift(w); got != sayDiffers || g.condition(w, wire.ConditionSuspended).Type == "" {
			t.Errorf("it is suspended: %q, %v", got, g.says(w))
		}
		g.asks(w, 1, nil)
		if g.value() != "1" || g.drift(w) != "" || g.condition(w, wire.ConditionDrifted).Type != "" || !g.applied(w) {
			t.Errorf("it is applied again: %q, %q, %v", g.value(), g.drift(w), g.says(w))
		}
		g.leavesAlone("it is compared again", func() { g.want(w, 2, reporting) })
		g.asks(w, 3, func(b *wire.Work) { reporting(b); b.Deleting = true; b.Spec.Workload.Manifests = nil })
		if !g.said[w.key()].Finalized || g.server.get(sharedPath) != nil || g.server.get(w.anchor()) != nil {
			t.Error("it is deleted, and something of it is left")
		}
	})
}

func TestDriftReportExplainsManifestNotCompared(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*outcome)
		view   fakeReader
		want   string
	}{
		"refused": {
			reason: "nothing is read outside of the owner's namespaces", change: func(o *outcome) { o.failure = "no" },
			want: "Drifted=Unknown/NotCompared@3",
		},
		"not to be watched": {
			reason: "it would not be live", change: func(o *outcome) { o.object.Name = "hidden" }, want: "Drifted=Unknown/NotCompared@3",
		},
		"not yet seen": {reason: "nobody guesses", change: func(*outcome) {}, view: fakeReader{}, want: ""},
		"missing":      {reason: "it is known not to be there", change: func(*outcome) {}, view: fakeReader{"a": nil}, want: "Drifted=True/ObjectMissing@3"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := &outcome{object: &manifest.ObjectID{Resource: "configmaps", Name: "a"}, isCompared: true}
			tc.change(o)
			w := &work{observedGeneration: 3}
			w.setDriftCondition(o, tc.view, metav1.Now())
			if diff := cmp.Diff(tc.want, strings.Join(text(o.conditions), " ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
