// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// sharedPath is where the object is that all works of a story bring.
const sharedPath = "/api/v1/namespaces/n/configmaps/shared"

// chooser picks one of n ways to go on.
type chooser func(n int) int

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

// pending is a request that waits for its turn.
type pending struct {
	call
	verdict chan verdict
	// answered is closed once whoever asked has his answer.
}

// verdict says what becomes of a request.
type verdict int

const (
	answered verdict = iota
	lost             // it is done, and its answer does not come
	late             // it fails, and is done some time later
	dropped          // it is not done
)

var errCut = errors.New("connection was cut")

// stage runs an engine on a fake API server, whose requests for the shared object and
// for anchors wait until they are chosen.
type stage struct {
	t      *testing.T
	server *fakeServer
	choose chooser
	// faults is how many requests may still go wrong.
	faults int
	// records: requests for anchors wait, too.
	records bool

	mu      sync.Mutex
	waiting []*pending
	overdue []call
	wants   map[string]resource.Resource
	said    map[string]wire.WorkStatus
	log     []string
	// others: somebody else writes at the moment.
	others bool

	engine *Engine
	stop   func()
}

func (g *stage) notef(format string, args ...any) {
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

// RoundTrip has a request wait for its turn.
func (g *stage) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := callOf(req)
	if err != nil {
		return nil, err
	}
	if c.watches() {
		return g.server.watch(req), nil
	}
	if !g.waits(c) {
		return g.answer(req, c)
	}
	p := &pending{call: c, verdict: make(chan verdict, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	g.mu.Unlock()
	select {
	case v := <-p.verdict:
		switch v {
		case answered:
			return g.answer(req, c)
		case lost:
			g.server.do(c)
		case late:
			g.mu.Lock()
			g.overdue = append(g.overdue, c)
			g.mu.Unlock()
		case dropped:
		}
		return nil, errCut
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// waits: works meet in the object alone. Their records are their own, and in which order
// two of them are written changes nothing.
func (g *stage) waits(c call) bool {
	creates := c.method == http.MethodPost && strings.HasSuffix(c.path, "/configmaps")
	return c.path == sharedPath || creates || g.records && c.method != http.MethodGet && strings.Contains(c.path, "/applied")
}

// CloseIdleConnections does nothing: there are none.
func (g *stage) CloseIdleConnections() {}

func (g *stage) answer(req *http.Request, c call) (*http.Response, error) {
	code, answer := g.server.do(c)
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return response(req, code, io.NopCloser(strings.NewReader(string(text)))), nil
}

// Put, Delete and Complete take what the engine says.
func (g *stage) Put(r resource.Resource) error {
	s, err := wire.DecodeWorkStatus(r.Body)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said[r.Key] = s
	if s.Finalized {
		delete(g.wants, r.Key)
	}
	return nil
}

func (g *stage) Delete(key string) {}
func (g *stage) Complete()         {}

// start runs an agent, to which the hub says what it wants.
func (g *stage) start() {
	cfg := Config{REST: &rest.Config{Host: "http://spoke", Transport: g}, HubID: "hub", Cluster: "spoke", Reporter: g}
	e, err := New(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	g.engine = e
	g.stop = func() {
		cancel()
		wg.Wait()
	}
	synctest.Wait()
	g.mu.Lock()
	var all []resource.Resource
	for _, r := range g.wants {
		all = append(all, r)
	}
	g.mu.Unlock()
	slices.SortFunc(all, func(a, b resource.Resource) int { return strings.Compare(a.Key, b.Key) })
	for _, r := range all {
		e.Receiver().Put(r)
	}
	e.Receiver().Synced()
}

// kill ends the agent; requests that wait are done or not.
func (g *stage) kill() {
	g.notef("the agent is killed")
	g.mu.Lock()
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, p := range waiting {
		if g.choose(2) == 1 {
			g.server.do(p.call)
			g.notef("  %s was done", p.call)
		}
	}
	g.stop()
	g.mu.Lock()
	g.waiting = nil // what was asked for in its last moment
	g.mu.Unlock()
	g.start()
}

func (c call) String() string {
	return strings.ReplaceAll(fmt.Sprintf("%s %s %s", c.method, c.path, strings.TrimSpace(string(c.body))), hubHashOne, "hash")
}

// want has the hub ask for a work.
func (g *stage) want(w storyWork, generation int64, change func(*wire.Work)) {
	body := wire.Work{Generation: generation, HubHash: hubHashOne}
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared","namespace":"n"},"data":{"k":"%d"}}`, generation)
	body.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
	if w.strategy != "" {
		body.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n", Name: "shared"},
			UpdateStrategy:     &workv1.UpdateStrategy{Type: w.strategy, ServerSideApply: w.apply()},
		}}
	}
	if change != nil {
		change(&body)
	}
	text, err := json.Marshal(body)
	if err != nil {
		g.t.Fatal(err)
	}
	r := resource.Resource{Key: w.key(), UID: "uid-" + w.name, Generation: generation, Body: text}
	g.mu.Lock()
	g.wants[r.Key] = r
	g.mu.Unlock()
	g.engine.Receiver().Put(r)
}

// storyWork is a work of a story.
type storyWork struct {
	name, dialect string
	strategy      workv1.UpdateStrategyType
}

func (w storyWork) apply() *workv1.ServerSideApplyConfig {
	if w.strategy != workv1.UpdateStrategyTypeServerSideApply {
		return nil
	}
	return &workv1.ServerSideApplyConfig{Force: true}
}

func (w storyWork) key() string {
	return wire.WorkKey{Dialect: w.dialect, Namespace: "spoke", Name: w.name}.String()
}

// anchor is the path of the work's record.
func (w storyWork) anchor() string {
	if w.dialect == wire.DialectManifestWork {
		return "/apis/work.open-cluster-management.io/v1/appliedmanifestworks/" + hubHashOne + "-" + w.name
	}
	return "/apis/multicluster.x-k8s.io/v1alpha1/appliedworks/" + w.name
}

// run goes on until nothing moves any more. What the users do in turn may come at
// any moment.
func (g *stage) run(acts []func()) {
	for idle := 0; idle < 4; {
		synctest.Wait()
		g.mu.Lock()
		slices.SortStableFunc(g.waiting, func(a, b *pending) int { return strings.Compare(a.String(), b.String()) })
		waiting, overdue := len(g.waiting), len(g.overdue)
		g.mu.Unlock()
		n := waiting + overdue
		if len(acts) > 0 {
			n++
		}
		if n == 0 {
			idle++
			time.Sleep(longestRetry)
			continue
		}
		idle = 0
		i := 0
		if n > 1 {
			i = g.choose(n)
		}
		switch {
		case i < waiting:
			g.let(i)
		case i < waiting+overdue:
			c := g.overdue[i-waiting]
			g.overdue = slices.Delete(g.overdue, i-waiting, i-waiting+1)
			g.notef("late: %s", c)
			g.server.do(c)
		default:
			acts[0]()
			acts = acts[1:]
		}
	}
}

// let has a request that waits be done, or go wrong.
func (g *stage) let(i int) {
	g.mu.Lock()
	p := g.waiting[i]
	g.waiting = slices.Delete(g.waiting, i, i+1)
	g.mu.Unlock()
	v := answered
	if g.faults > 0 && g.choose(8) == 0 {
		g.faults--
		v = lost + verdict(g.choose(3))
		if p.method == http.MethodGet || v == late && p.path != sharedPath {
			v = dropped
		}
	}
	g.notef("%s: %s", []string{"done", "answer lost", "to be late", "dropped"}[v], p)
	p.verdict <- v
}

// owns tells whether the record of a work owns the object.
func (g *stage) owns(w storyWork, live *unstructured.Unstructured) bool {
	anchor := g.server.get(w.anchor())
	return anchor != nil && slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == anchor.GetUID() })
}

// wanted tells whether the hub wants the object of a work, to own it.
func (g *stage) wanted(w storyWork) bool {
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
func (g *stage) applied(w storyWork) bool {
	r := g.wants[w.key()]
	s := g.said[w.key()]
	return s.ObservedGeneration == r.Generation && meta.IsStatusConditionTrue(s.Conditions, conditionApplied)
}

// sharedStory is what users do with works that share an object.
type sharedStory struct {
	reason string
	works  []storyWork
	// acts of the users, in this order, at any moment.
	acts func(g *stage, w []storyWork) []func()
	// found: the object was there before, and of Works it stays.
	found bool
}

func creates(g *stage, works []storyWork) []func() {
	var out []func()
	for _, w := range works {
		out = append(out, func() { g.notef("create %s", w.name); g.want(w, 1, nil) })
	}
	return out
}

func deletes(g *stage, works ...storyWork) []func() {
	var out []func()
	for _, w := range works {
		out = append(out, func() {
			g.notef("delete %s", w.name)
			g.want(w, 9, func(b *wire.Work) { b.Deleting = true; b.Spec.Workload.Manifests = nil })
		})
	}
	return out
}

func updates(g *stage, w storyWork) func() {
	return func() { g.notef("update %s", w.name); g.want(w, 2, nil) }
}

func orphansIt(g *stage, w storyWork) func() {
	return func() {
		g.notef("orphan by %s", w.name)
		g.want(w, 1, func(b *wire.Work) {
			b.Generation = 3
			b.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
		})
	}
}

func leaves(g *stage, w storyWork) func() {
	return func() {
		g.notef("the manifest leaves %s", w.name)
		g.want(w, 4, func(b *wire.Work) {
			raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"own-%s","namespace":"n"}}`, w.name)
			b.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
		})
	}
}

// meddles has somebody else change the object.
func meddles(g *stage, what string, change func(*unstructured.Unstructured)) func() {
	return func() {
		live := g.server.get(sharedPath)
		if live == nil {
			return
		}
		g.notef("somebody else %s", what)
		g.others = true
		defer func() { g.others = false }()
		if change == nil {
			g.server.do(call{method: http.MethodDelete, path: sharedPath, body: []byte("{}")})
			return
		}
		change(live)
		text, err := live.MarshalJSON()
		if err != nil {
			g.t.Fatal(err)
		}
		g.server.do(call{method: http.MethodPut, path: sharedPath, body: text, query: map[string][]string{"fieldManager": {"kubectl"}}})
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
		out[name+": one deleted"] = sharedStory{reason: "the other one wants the object", works: works, acts: func(g *stage, w []storyWork) []func() {
			return append(creates(g, w), deletes(g, w[0])...)
		}}
		out[name+": one updated, one deleted"] = sharedStory{reason: "an apply may bring back a reference", works: works, acts: func(g *stage, w []storyWork) []func() {
			return append(append(creates(g, w), updates(g, w[1])), deletes(g, w[0])...)
		}}
		out[name+": the manifest leaves one"] = sharedStory{reason: "the work stays", works: works, acts: func(g *stage, w []storyWork) []func() {
			return append(creates(g, w), leaves(g, w[0]))
		}}
		if works[0].dialect == mw {
			out[name+": one orphans it"] = sharedStory{reason: "it is the other one's alone then", works: works, acts: func(g *stage, w []storyWork) []func() {
				return append(creates(g, w), orphansIt(g, w[0]))
			}}
		}
		if slices.ContainsFunc(works, func(w storyWork) bool { return w.dialect == mc }) {
			out[name+": found, one deleted"] = sharedStory{reason: "what was there before a Work stays after it", works: works, found: true, acts: func(g *stage, w []storyWork) []func() {
				return append(creates(g, w), deletes(g, w[len(w)-1])...)
			}}
		}
		out[name+": somebody strips the references"] = sharedStory{reason: "they are ours", works: works, acts: func(g *stage, w []storyWork) []func() {
			return append(creates(g, w), meddles(g, "strips the references", func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }))
		}}
		out[name+": somebody deletes the object"] = sharedStory{reason: "it is made again", works: works, acts: func(g *stage, w []storyWork) []func() {
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
		g := &stage{t: t, server: newFakeServer(), faults: faults, records: faults > 0 || kill >= 0, wants: map[string]resource.Resource{}, said: map[string]wire.WorkStatus{}}
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
			g.server.do(call{method: http.MethodPost, path: path.Dir(sharedPath), body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared","namespace":"n"},"data":{"theirs":"1"}}`), query: map[string][]string{"fieldManager": {"kubectl"}}})
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
func (g *stage) deleted(s sharedStory, at string, live *unstructured.Unstructured) {
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
func (g *stage) settled(s sharedStory) {
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
func (g *stage) collect() {
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
		g.server.do(call{method: http.MethodDelete, path: sharedPath, body: []byte("{}")})
	}
}

// mostWays bounds a story.
const mostWays = 20_000

func TestWorksThatShareAnObjectInEveryOrder(t *testing.T) {
	for name, s := range sharedStories() {
		t.Run(name, func(t *testing.T) {
			walk(t, mostWays, func(choose chooser) { s.play(t, choose, 0, -1) })
		})
	}
}

// Three works, answers that are lost or late, and kills of the agent: too many to walk.
func TestWorksThatShareAnObjectByChance(t *testing.T) {
	plays, first := uint64(20), uint64(1)
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
				r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
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
