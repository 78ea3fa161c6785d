// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// shared is a scene in which x claims the object, too.
func shared() *scene {
	s := newScene()
	s.claim(s.target(), "x", "anchor-x")
	s.repairs, s.reports = nil, nil
	return s
}

// repeats are the works whose references an apply of x repeats that begins now.
func (s *scene) repeats() []string {
	var works []string
	for _, o := range s.begin(s.id, "x", time.Now()) {
		works = append(works, o.work)
	}
	s.finish(s.id, "x", body, nil, guardFields)
	return works
}

func TestAWaivedReferenceIsNotRepeated(t *testing.T) {
	alone, both := []string{"x"}, []string{"w", "x"}
	wants := intent{content: body, desire: body, owns: true}
	tests := map[string]struct {
		reason string
		do     func(*scene)
		want   []string
	}{
		"nothing happened":    {reason: "both own the object", do: func(*scene) {}, want: both},
		"waived":              {reason: "the reference is about to go", do: func(s *scene) { s.waive(s.target(), "w", "anchor") }, want: alone},
		"waived and released": {reason: "it has gone", do: func(s *scene) { s.waive(s.target(), "w", "anchor"); s.release(s.id, "w") }, want: alone},
		"waived twice": {
			reason: "that the removal is tried again does not restore it",
			do:     func(s *scene) { s.waive(s.target(), "w", "anchor"); s.waive(s.target(), "w", "anchor") }, want: alone,
		},
		"claimed again": {
			reason: "the anchor still lists the object, and that is all",
			do:     func(s *scene) { s.waive(s.target(), "w", "anchor"); s.claim(s.target(), "w", "anchor") }, want: alone,
		},
		"claimed for another anchor": {
			reason: "what was waived was the old one's",
			do:     func(s *scene) { s.waive(s.target(), "w", "anchor"); s.claim(s.target(), "w", "another") }, want: both,
		},
		"wanted again": {
			reason: "the manifest came back before the reference had gone",
			do:     func(s *scene) { s.waive(s.target(), "w", "anchor"); s.intend(s.id, "w", wants) }, want: both,
		},
		"orphaned": {reason: "the work lets go of the object and stays", do: func(s *scene) { s.intend(s.id, "w", intent{content: body}) }, want: alone},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := shared()
			tc.do(s)
			if diff := cmp.Diff(tc.want, s.repeats()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWhatIsWantedAgainIsAppliedAgain(t *testing.T) {
	s := shared()
	s.waive(s.target(), "w", "anchor")
	s.intend(s.id, "w", intent{content: body, desire: body, owns: true})
	if due, _ := s.due(s.id, "w", body, time.Now()); !due {
		t.Error("its reference may be gone, and nobody writes it")
	}
}

// What another work wrote last is not written by a work that has given it up.
func TestWhatIsGivenUpIsNotAppliedForItsReference(t *testing.T) {
	s := shared()
	s.yield(s.id, "w", body)
	s.waive(s.target(), "w", "anchor")
	s.intend(s.id, "w", intent{content: body, desire: body})
	if due, _ := s.due(s.id, "w", body, time.Now()); due {
		t.Error("it is applied again, and no reference of the work is missing")
	}
}

// An apply that began while a work owned the object repeats its reference: one that
// is removed before that apply ends may come back.
func TestAReleaseWaitsForAppliesThatBeganBeforeIt(t *testing.T) {
	begin := func(s *scene) { s.begin(s.id, "x", time.Now()) }
	waive := func(s *scene) { s.waive(s.target(), "w", "anchor") }
	finish := func(s *scene) { s.finish(s.id, "x", body, seen("u", "11", 1), guardFields) }
	orphan := func(s *scene) { s.intend(s.id, "w", intent{content: body}) }
	tests := map[string]struct {
		reason   string
		do       []func(*scene)
		repeated bool
		// looks: w is queued, to look at the object again.
		looks bool
	}{
		"none":                     {reason: "nobody can bring it back", do: []func(*scene){waive}},
		"one that ended before":    {reason: "what it wrote is removed", do: []func(*scene){begin, finish, waive}},
		"one that begins after":    {reason: "it does not repeat the reference", do: []func(*scene){waive, begin}},
		"one that has not ended":   {reason: "it may be written any moment", do: []func(*scene){begin, waive}, repeated: true},
		"one that ends after":      {reason: "the work looks again, and now removes it", do: []func(*scene){begin, waive, finish}, looks: true},
		"one that ends, one after": {reason: "the second does not repeat it", do: []func(*scene){begin, waive, finish, begin}, looks: true},
		"one that fails": {
			reason: "it may have been done nevertheless",
			do: []func(*scene){begin, waive, func(s *scene) {
				s.finish(s.id, "x", body, nil, guardFields)
			}}, looks: true,
		},
		"one that only read": {
			reason: "a work that wrote yesterday reads today",
			do:     []func(*scene){begin, waive, func(s *scene) { s.found(s.id, "x", body, seen("u", "11", 1)) }}, looks: true,
		},
		"one of two": {
			reason: "the other one may still bring it back", repeated: true,
			do: []func(*scene){begin, func(s *scene) {
				s.claim(s.target(), "y", "anchor-y")
				s.begin(s.id, "y", time.Now())
			}, waive, finish},
		},
		"an event in between":      {reason: "who wrote that is not known", do: []func(*scene){begin, waive, func(s *scene) { s.observe(s.id, seen("u", "11", 2), false, time.Time{}) }}, repeated: true},
		"the work orphans it":      {reason: "it lets go of the object and stays", do: []func(*scene){begin, orphan}, repeated: true},
		"the work has orphaned it": {reason: "the same", do: []func(*scene){begin, orphan, finish}, looks: true},
		"the work keeps it":        {reason: "nothing is removed", do: []func(*scene){begin, finish}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := shared()
			for _, do := range tc.do {
				do(s)
			}
			if got := s.repeated(s.id, "w"); got != tc.repeated {
				t.Errorf("%s: repeated is %t", tc.reason, got)
			}
			if got := slices.Contains(s.repairs, "w"); got != tc.looks {
				t.Errorf("%s: repairs %v", tc.reason, s.repairs)
			}
		})
	}
}

func TestAnAnchorThatIsNobodysTakesItsClaimsAlong(t *testing.T) {
	s := shared()
	s.intend(s.id, "w", intent{content: body, desire: [32]byte{1}, manager: "work-agent", owns: true})
	s.intend(s.id, "x", intent{content: body, desire: [32]byte{2}, manager: "work-agent", owns: true})
	s.transfer(s.id, "w", "nobody")
	if diff := cmp.Diff([]string{"x"}, s.repeats()); diff != "" {
		t.Errorf("owners: what is nobody's keeps what it owns, and is given nothing (-want +got):\n%s", diff)
	}
	if got := s.rivals(s.id, "x"); got != nil {
		t.Errorf("what is nobody's wants nothing, and is said to: %v", got)
	}
	s.claim(s.target(), "w", "new")
	if due, _ := s.due(s.id, "w", body, time.Now()); !due {
		t.Error("the work does not own the object with its new anchor")
	}
	s.waive(s.target(), "nobody", "anchor")
	s.release(s.id, "nobody")
	if diff := cmp.Diff([]string{"w", "x"}, s.repeats()); diff != "" {
		t.Errorf("owners once it is evicted (-want +got):\n%s", diff)
	}
}

func TestAReleaseUnderAnotherKeyWaitsToo(t *testing.T) {
	s := shared()
	s.begin(s.id, "x", time.Now())
	s.transfer(s.id, "w", "nobody")
	if !s.waive(s.target(), "nobody", "anchor") {
		t.Error("the reference is removed, and comes back")
	}
	s.finish(s.id, "x", body, seen("u", "11", 1), guardFields)
	if !slices.Contains(s.repairs, "nobody") {
		t.Errorf("repairs %v: nobody looks again", s.repairs)
	}
}

// A work that orphans its object moves to another hash of its hub.
func TestAnOrphanedObjectHasNoOwnerAfterTheHubMoved(t *testing.T) {
	tests := map[string]struct {
		reason string
		moves  func(e *Engine, w *work)
	}{
		"while the agent runs": {reason: "the work held the old anchor", moves: func(e *Engine, w *work) { e.releaseAnchor(w, &desired{hubHash: "B"}) }},
		"before it started":    {reason: "the old anchor is read", moves: func(e *Engine, w *work) { e.rebind(w.policy, strange("A-w"), "A-w", w.anchor) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e, w, at := anchored(t, "A")
			e.table.claim(at, w.key.String(), w.anchor.uid)
			e.table.intend(at.objectID, w.key.String(), intent{content: body})
			tc.moves(e, w)
			e.table.claim(at, w.key.String(), "anchor-B")
			e.table.intend(at.objectID, w.key.String(), intent{content: body})
			if got := e.table.begin(at.objectID, w.key.String(), time.Now()); len(got) != 0 {
				t.Errorf("%s, and an apply makes the orphaned object belong to %v", tc.reason, got)
			}
		})
	}
}

// anchored is an engine with a work under a hash of its hub, whose anchor lists one
// object. It reaches no API server.
func anchored(t *testing.T, hash string) (*Engine, *work, target) {
	t.Helper()
	e := &Engine{
		cfg: Config{EvictionGrace: time.Hour}, queue: workqueue.NewTypedDelayingQueue[string](), reporter: resource.NewSource(wire.KindWorkStatus),
		backlog: newBacklog(), works: map[string]*work{}, anchors: map[string]*work{}, waiting: map[string]map[string]struct{}{},
	}
	t.Cleanup(e.queue.ShutDown)
	var err error
	if e.metrics, err = newMetrics(nil, e.count); err != nil {
		t.Fatal(err)
	}
	e.table = newTable(func(scope) func() { return func() {} }, func(string) {}, func(string) {})
	at := target{objectID: objectID{Resource: "configmaps", Namespace: "n", Name: "o"}, Version: "v1", Kind: "ConfigMap"}
	w := e.bind(ManifestWork(), wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: spokeName, Name: "w"}, hash+"-w")
	w.anchor = &anchor{uid: types.UID("anchor-" + hash), tracked: map[objectID]tracked{at.objectID: {target: at, uid: "u"}}}
	return e, w, at
}

// A hub that goes back to its first hash has the anchor of that hash again: it is
// nobody's only in between.
func TestAnAnchorThatWasTakenOverAgainIsNotEvicted(t *testing.T) {
	e, w, at := anchored(t, "A")
	e.table.claim(at, w.key.String(), w.anchor.uid)
	e.releaseAnchor(w, &desired{hubHash: "B"})
	nobodys := e.lookup(strange("A-w").String())
	nobodys.anchor.evicting = time.Now()
	if wait, err := e.evict(t.Context(), nobodys); wait == 0 || err != nil {
		t.Fatalf("in its grace: wait %s, %v", wait, err)
	}
	queued(e.queue)
	e.releaseAnchor(w, &desired{hubHash: "A"})
	if diff := cmp.Diff([]string{nobodys.key.String()}, queued(e.queue)); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
	e.table.claim(at, w.key.String(), "anchor-A")
	if wait, err := e.evict(t.Context(), nobodys); wait != 0 || err != nil {
		t.Errorf("it still waits %s for its eviction, %v", wait, err)
	}
	if nobodys.anchor != nil || e.lookup(nobodys.key.String()) != nil || e.anchors[ManifestWork().Dialect+"/A-w"] != w {
		t.Error("the anchor of a work that is wanted is held by what is evicted")
	}
	for _, o := range e.table.begin(at.objectID, w.key.String(), time.Now()) {
		if o.work != w.key.String() {
			t.Errorf("the object belongs to %s, too", o.work)
		}
	}
}

// Anchors are listed anew after a failure, those that were read before among them.
func TestAnAnchorThatIsReadTwiceStaysThatOfItsWork(t *testing.T) {
	e, w, _ := anchored(t, "A")
	e.cfg.Cluster = w.key.Namespace
	if got := e.standsFor(w.policy, w.key, "A-w"); got != w.key {
		t.Errorf("it stands for %s, want %s", got, w.key)
	}
	if got := e.standsFor(w.policy, w.key, "B-w"); got != strange("B-w") {
		t.Errorf("a second one stands for %s", got)
	}
}

// What a copy of a work orphans, or only reads, its anchor does not own: before the work
// itself runs again another one may write the object, and repeat references.
func TestAWorkOwnsAfterARestartWhatItsCopySays(t *testing.T) {
	option := func(u workv1.UpdateStrategyType) []workv1.ManifestConfigOption {
		return []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n", Name: "o"}, UpdateStrategy: strategyOf(u),
		}}
	}
	cases := map[string]struct {
		reason string
		spec   workv1.ManifestWorkSpec
		owns   bool
	}{
		"it keeps it":   {reason: "an apply withdraws what it does not repeat", owns: true},
		"it orphans it": {reason: "the reference was removed, and would come back", spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}}},
		"it reads it":   {reason: "there never was a reference", spec: workv1.ManifestWorkSpec{ManifestConfigs: option(workv1.UpdateStrategyTypeReadOnly)}},
		"it creates it": {reason: "it is deleted with the work", spec: workv1.ManifestWorkSpec{ManifestConfigs: option(workv1.UpdateStrategyTypeCreateOnly)}, owns: true},
		"it orphans one": {reason: "another object", spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{Resource: "configmaps", Namespace: "n", Name: "other"}}},
		}}, owns: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, w, at := anchored(t, "A")
			e.cfg.Cluster, e.policies = spokeName, map[string]Policy{wire.DialectManifestWork: ManifestWork()}
			e.hold(w, w.anchor)
			body, err := json.Marshal(wire.Work{Generation: 1, HubHash: hubHashOne, Spec: tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			key := w.key.String()
			if err := e.want(resource.Resource{Key: key, UID: "uid", Generation: 1, Body: body}, true); err != nil {
				t.Fatal(err)
			}
			e.recallOrphans(key)
			e.table.claim(at, "other", "anchor-other")
			want := []owner{{work: key, anchor: w.anchor.uid}, {work: "other", anchor: "anchor-other"}}
			if !tc.owns {
				want = want[1:]
			}
			got := e.table.begin(at.objectID, "other", time.Now())
			slices.SortFunc(got, func(a, b owner) int { return strings.Compare(string(a.anchor), string(b.anchor)) })
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(owner{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
