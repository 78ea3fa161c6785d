// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/testscale"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// walk has play choose in every way there is, up to most of them.
func walk(t *testing.T, most int, play func(chooser)) {
	t.Helper()
	var taken, ways []int
	for n := 1; ; n++ {
		at := 0
		play(func(n int) int {
			if at == len(taken) {
				taken, ways = append(taken, 0), append(ways, n)
			}
			at++
			if ways[at-1] != n {
				t.Fatalf("choice %d of %v: %d ways, and before there were %d: the story is not the same twice", at, taken, n, ways[at-1])
			}
			return taken[at-1]
		})
		if t.Failed() {
			t.Fatalf("with the choices %v", taken[:at])
		}
		taken, ways = taken[:at], ways[:at]
		for len(taken) > 0 && taken[len(taken)-1] == ways[len(ways)-1]-1 {
			taken, ways = taken[:len(taken)-1], ways[:len(ways)-1]
		}
		if len(taken) == 0 {
			t.Logf("%d ways", n)
			return
		}
		if n == most {
			t.Fatalf("more than %d ways", most)
		}
		taken[len(taken)-1]++
	}
}

// owns tells whether the record of a work owns the object.
func (g *simulation) owns(w storyWork, live *unstructured.Unstructured) bool {
	anchor := g.server.get(w.anchor())
	return anchor != nil && slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == anchor.GetUID() })
}

// wanted tells whether the hub wants the object of a work, to own it.
func (g *simulation) wanted(w storyWork) bool {
	r, ok := g.wants[w.key()]
	if !ok {
		return false
	}
	body, err := wire.DecodeWork(r.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return !body.Deleting && body.Spec.DeleteOption == nil && strings.Contains(string(body.Spec.Workload.Manifests[0].Raw), "shared") && w.strategy != workv1.UpdateStrategyTypeReadOnly
}

// applied tells whether a work says so, of what is wanted now.
func (g *simulation) applied(w storyWork) bool {
	r := g.wants[w.key()]
	s := g.said[w.key()]
	return s.ObservedGeneration == r.Generation && meta.IsStatusConditionTrue(s.Conditions, conditionApplied)
}

// sharedStory is what users do with works that share an object.
type sharedStory struct {
	reason string
	works  []storyWork
	// acts of the users, in this order, at any moment.
	acts func(g *simulation, w []storyWork) []func()
	// found: the object was there before, and of Works it stays.
	found bool
}

func creates(g *simulation, works []storyWork) []func() {
	var out []func()
	for _, w := range works {
		out = append(out, func() { g.notef("create %s", w.name); g.want(w, 1, nil) })
	}
	return out
}

func deletes(g *simulation, works ...storyWork) []func() {
	var out []func()
	for _, w := range works {
		out = append(out, func() {
			g.notef("delete %s", w.name)
			g.want(w, 9, func(b *wire.Work) { b.Deleting = true; b.Spec.Workload.Manifests = nil })
		})
	}
	return out
}

func updates(g *simulation, w storyWork) func() {
	return func() { g.notef("update %s", w.name); g.want(w, 2, nil) }
}

func orphansIt(g *simulation, w storyWork) func() {
	return func() {
		g.notef("orphan by %s", w.name)
		g.want(w, 1, func(b *wire.Work) {
			b.Generation = 3
			b.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		})
	}
}

func leaves(g *simulation, w storyWork) func() {
	return func() {
		g.notef("the manifest leaves %s", w.name)
		g.want(w, 4, func(b *wire.Work) {
			raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own-%s","namespace":"n"}}`, w.name)
			b.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
		})
	}
}

// meddles has somebody else change the object.
func meddles(g *simulation, what string, change func(*unstructured.Unstructured)) func() {
	return func() {
		live := g.server.get(sharedPath)
		if live == nil {
			return
		}
		g.notef("somebody else %s", what)
		g.others = true
		defer func() { g.others = false }()
		if change == nil {
			g.server.do(request{method: http.MethodDelete, path: sharedPath, body: []byte("{}")})
			return
		}
		change(live)
		text, err := live.MarshalJSON()
		if err != nil {
			g.t.Fatal(err)
		}
		g.server.do(request{method: http.MethodPut, path: sharedPath, body: text, query: map[string][]string{"fieldManager": {"kubectl"}}})
	}
}

// losesRecord has somebody delete the record of a work.
func (g *simulation) losesRecord(w storyWork) func() {
	return func() {
		g.notef("somebody deletes the record of %s", w.name)
		g.server.do(request{method: http.MethodDelete, path: w.anchor(), body: []byte("{}")})
	}
}

func sharedStories() map[string]sharedStory {
	of := func(dialect string, strategy workv1.UpdateStrategyType, names ...string) []storyWork {
		var out []storyWork
		for _, n := range names {
			out = append(out, storyWork{name: n, dialect: dialect, strategy: strategy})
		}
		return out
	}
	mw, mc := wire.DialectManifestWork, wire.DialectMulticluster
	kinds := map[string][]storyWork{
		"two Works":                         of(mc, "", "a", "b"),
		"two ManifestWorks, Update":         of(mw, "", "a", "b"),
		"two ManifestWorks, apply":          of(mw, workv1.UpdateStrategyTypeServerSideApply, "a", "b"),
		"two ManifestWorks, CreateOnly":     of(mw, workv1.UpdateStrategyTypeCreateOnly, "a", "b"),
		"a Work and a ManifestWork, apply":  {of(mc, "", "a")[0], of(mw, workv1.UpdateStrategyTypeServerSideApply, "b")[0]},
		"a Work and a ManifestWork, Update": {of(mc, "", "a")[0], of(mw, "", "b")[0]},
	}
	out := map[string]sharedStory{}
	for name, works := range kinds {
		out[name+": created together"] = sharedStory{reason: "each apply carries the owners of its moment", works: works, acts: creates}
		out[name+": one deleted"] = sharedStory{reason: "the other one wants the object", works: works, acts: func(g *simulation, w []storyWork) []func() {
			return append(creates(g, w), deletes(g, w[0])...)
		}}
		out[name+": one updated, one deleted"] = sharedStory{reason: "an apply may bring back a reference", works: works, acts: func(g *simulation, w []storyWork) []func() {
			return append(append(creates(g, w), updates(g, w[1])), deletes(g, w[0])...)
		}}
		out[name+": the manifest leaves one"] = sharedStory{reason: "the work stays", works: works, acts: func(g *simulation, w []storyWork) []func() {
			return append(creates(g, w), leaves(g, w[0]))
		}}
		if works[0].dialect == mw {
			out[name+": one orphans it"] = sharedStory{reason: "it is the other one's alone then", works: works, acts: func(g *simulation, w []storyWork) []func() {
				return append(creates(g, w), orphansIt(g, w[0]))
			}}
		}
		if slices.ContainsFunc(works, func(w storyWork) bool { return w.dialect == mc }) {
			out[name+": found, one deleted"] = sharedStory{reason: "what was there before a Work stays after it", works: works, found: true, acts: func(g *simulation, w []storyWork) []func() {
				return append(creates(g, w), deletes(g, w[len(w)-1])...)
			}}
		}
		out[name+": somebody strips the references"] = sharedStory{reason: "they are ours", works: works, acts: func(g *simulation, w []storyWork) []func() {
			return append(creates(g, w), meddles(g, "strips the references", func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }))
		}}
		out[name+": somebody deletes a record, one deleted"] = sharedStory{reason: "its work makes another one, and wants the object", works: works, acts: func(g *simulation, w []storyWork) []func() {
			return append(append(creates(g, w), g.losesRecord(w[0])), deletes(g, w[1])...)
		}}
		out[name+": somebody deletes the object"] = sharedStory{reason: "it is made again", works: works, acts: func(g *simulation, w []storyWork) []func() {
			return append(creates(g, w), meddles(g, "deletes the object", nil))
		}}
	}
	return out
}

// play plays a story, and then has the works that are left deleted at the same time.
// kill ends the agent after that many choices; -1 never.
func (s sharedStory) play(t *testing.T, choose chooser, faults, kill int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		g := &simulation{t: t, server: newFakeServer(), faults: faults, records: faults > 0 || kill >= 0, wants: map[string]resource.Resource{}, said: map[string]wire.WorkStatus{}}
		steps := 0
		g.choose = func(n int) int {
			steps++
			return choose(n)
		}
		defer func() {
			if t.Failed() {
				t.Logf("%s", strings.Join(g.log, "\n"))
			}
		}()
		g.server.gone = func(at string, live *unstructured.Unstructured) { g.deleted(s, at, live) }
		g.start()
		defer func() { g.stop() }()
		if s.found {
			g.server.do(request{method: http.MethodPost, path: path.Dir(sharedPath), body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared","namespace":"n"},"data":{"theirs":"1"}}`), query: map[string][]string{"fieldManager": {"kubectl"}}})
		}
		acts := s.acts(g, s.works)
		if kill >= 0 {
			acts = slices.Insert(acts, kill%(len(acts)+1), g.kill)
		}
		g.run(acts)
		g.settled(s)
		var left []storyWork
		for _, w := range s.works {
			if _, ok := g.wants[w.key()]; ok {
				left = append(left, w)
			}
		}
		g.run(deletes(g, left...))
		g.collect()
		// A ManifestWork deletes what it found when it is the last one.
		lasts := slices.ContainsFunc(left, func(w storyWork) bool { return w.dialect == wire.DialectManifestWork })
		switch live := g.server.get(sharedPath); {
		case s.found && lasts && live == nil:
		case s.found && live == nil:
			t.Error("the object was there before any work, and is deleted")
		case s.found && len(live.GetOwnerReferences()) > 0:
			t.Errorf("the object belongs to nobody, and is owned by %v", live.GetOwnerReferences())
		case !s.found && live != nil:
			t.Errorf("no work claims the object any more, and it is there, owned by %v", live.GetOwnerReferences())
		}
		for _, w := range s.works {
			if g.server.get(w.anchor()) != nil {
				t.Errorf("the record of %s is left", w.name)
			}
		}
	})
}

// deleted is told that an object goes: of none that a work wants and owns may that be
// our doing.
func (g *simulation) deleted(s sharedStory, at string, live *unstructured.Unstructured) {
	if at != sharedPath || g.others {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range s.works {
		anchor := g.server.objects[w.anchor()]
		owns := anchor != nil && slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == anchor.GetUID() })
		if g.wanted(w) && (owns || g.applied(w)) {
			g.t.Errorf("the object is deleted, which %s wants: it owns it %t, says that it is applied %t", w.name, owns, g.applied(w))
		}
	}
}

// settled checks what holds when nothing moves.
func (g *simulation) settled(s sharedStory) {
	live := g.server.get(sharedPath)
	for _, w := range s.works {
		if !g.wanted(w) {
			continue
		}
		switch {
		case !g.applied(w):
			g.t.Errorf("%s is not applied: %+v", w.name, g.said[w.key()].Conditions)
		case live == nil:
			g.t.Errorf("%s says that it is applied, and there is no object", w.name)
		case !g.owns(w, live):
			g.t.Errorf("%s says that it is applied, and the object is owned by %v", w.name, live.GetOwnerReferences())
		}
	}
}

// collect is the garbage collector's part: an object goes whose owners are all gone. One
// is only left like that by a request that was done after its sender had given it up.
func (g *simulation) collect() {
	live := g.server.get(sharedPath)
	if live == nil || len(live.GetOwnerReferences()) == 0 {
		return
	}
	known := map[types.UID]bool{}
	for _, u := range g.server.objects {
		known[u.GetUID()] = true
	}
	if !slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return known[o.UID] }) {
		g.others = true
		g.server.do(request{method: http.MethodDelete, path: sharedPath, body: []byte("{}")})
	}
}

// mostWays bounds a story.
const mostWays = 20_000

// alike are kinds of works whose other stories are those of another kind, but for the
// names of requests: a run plays some, and the full one all.
var alike = regexp.MustCompile(`^(two ManifestWorks, (Update|CreateOnly)|a Work and a ManifestWork, apply): (one deleted|the manifest|found|somebody strips|somebody deletes the object)`)

func TestSharedObjectInEveryInterleaving(t *testing.T) {
	for name, s := range sharedStories() {
		if testscale.Of(1, 0) == 1 && alike.MatchString(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			walk(t, mostWays, func(choose chooser) { s.play(t, choose, 0, -1) })
		})
	}
}

// Three works, answers that are lost or late, and kills of the agent: too many to walk. A
// run has a few of each story, for the race detector makes them ten times as slow.
func TestSharedObjectInRandomInterleavings(t *testing.T) {
	plays, first := uint64(testscale.Of(4, 100)), uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("SPOKELET_HISTORIES"), 10, 64); err == nil {
		plays = n
	}
	if n, err := strconv.ParseUint(os.Getenv("SPOKELET_SEED"), 10, 64); err == nil {
		first = n
	}
	for name, s := range sharedStories() {
		s.works = append(s.works, storyWork{name: "c", dialect: s.works[1].dialect, strategy: s.works[1].strategy})
		t.Run(name, func(t *testing.T) {
			for seed := first; seed < first+plays && !t.Failed(); seed++ {
				r := rand.New(rand.NewPCG(seed, 0))
				kill := -1
				if seed%2 == 0 {
					kill = r.IntN(10)
				}
				s.play(t, r.IntN, int(seed%4), kill)
				if t.Failed() {
					t.Logf("seed %d: %s", seed, s.reason)
				}
			}
		})
	}
}
