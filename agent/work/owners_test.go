// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// newSharedFixture is a scene in which x claims the object, too.
func newSharedFixture() *inventoryFixture {
	s := newInventoryFixture()
	s.addClaim(s.target(), "x", "anchor-x")
	s.requeued, s.statusRequeued = nil, nil
	return s
}

// ownersOfNextWrite are the works whose references an apply of x repeats that begins now.
func (s *inventoryFixture) ownersOfNextWrite() []string {
	var works []string
	for _, o := range s.beginWrite(s.id, "x", time.Now()) {
		works = append(works, o.work)
	}
	s.recordApply(s.id, "x", body, nil, driftByFields)
	return works
}

func TestDroppedOwnershipIsNotRepeated(t *testing.T) {
	alone, both := []string{"x"}, []string{"w", "x"}
	wants := desiredState{contentHash: body, manifestHash: body, isOwner: true}
	tests := map[string]struct {
		reason string
		do     func(*inventoryFixture)
		want   []string
	}{
		"nothing happened":    {reason: "both own the object", do: func(*inventoryFixture) {}, want: both},
		"waived":              {reason: "the reference is about to go", do: func(s *inventoryFixture) { s.dropOwnership(s.target(), "w", "anchor") }, want: alone},
		"waived and released": {reason: "it has gone", do: func(s *inventoryFixture) { s.dropOwnership(s.target(), "w", "anchor"); s.releaseClaim(s.id, "w") }, want: alone},
		"waived twice": {
			reason: "that the removal is tried again does not restore it",
			do: func(s *inventoryFixture) {
				s.dropOwnership(s.target(), "w", "anchor")
				s.dropOwnership(s.target(), "w", "anchor")
			}, want: alone,
		},
		"claimed again": {
			reason: "the anchor still lists the object, and that is all",
			do: func(s *inventoryFixture) {
				s.dropOwnership(s.target(), "w", "anchor")
				s.addClaim(s.target(), "w", "anchor")
			}, want: alone,
		},
		"claimed for another anchor": {
			reason: "what was waived was the old one's",
			do: func(s *inventoryFixture) {
				s.dropOwnership(s.target(), "w", "anchor")
				s.addClaim(s.target(), "w", "another")
			}, want: both,
		},
		"wanted again": {
			reason: "the manifest came back before the reference had gone",
			do:     func(s *inventoryFixture) { s.dropOwnership(s.target(), "w", "anchor"); s.setDesired(s.id, "w", wants) }, want: both,
		},
		"orphaned": {reason: "the work lets go of the object and stays", do: func(s *inventoryFixture) { s.setDesired(s.id, "w", desiredState{contentHash: body}) }, want: alone},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSharedFixture()
			tc.do(s)
			if diff := cmp.Diff(tc.want, s.ownersOfNextWrite()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestObjectWantedAgainIsAppliedAgain(t *testing.T) {
	s := newSharedFixture()
	s.dropOwnership(s.target(), "w", "anchor")
	s.setDesired(s.id, "w", desiredState{contentHash: body, manifestHash: body, isOwner: true})
	if what, _ := s.nextAction(s.id, "w", body, time.Now()); what != actionApply {
		t.Error("its reference may be gone, and nobody writes it")
	}
}

// What another work wrote last is not written by a work that has given it up.
func TestDroppedObjectIsNotAppliedForOwner(t *testing.T) {
	s := newSharedFixture()
	s.markSuperseded(s.id, "w", body)
	s.dropOwnership(s.target(), "w", "anchor")
	s.setDesired(s.id, "w", desiredState{contentHash: body, manifestHash: body})
	if what, _ := s.nextAction(s.id, "w", body, time.Now()); what == actionApply {
		t.Error("it is applied again, and no reference of the work is missing")
	}
}

// Two writes of one object at once carry the owners known when each began: the later
// one to arrive could withdraw what the other wrote.
func TestLockAdmitsOneWorkAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedFixture()
		unlock, err := s.lock(t.Context(), s.id)
		if err != nil {
			t.Fatal(err)
		}
		var held atomic.Int32
		for range 2 {
			go func() {
				unlock, err := s.lock(t.Context(), s.id)
				if err != nil {
					return
				}
				held.Add(1)
				time.Sleep(time.Second)
				unlock()
			}()
		}
		synctest.Wait()
		if n := held.Load(); n != 0 {
			t.Errorf("%d others hold what is held", n)
		}
		other := s.id
		other.Name = "other"
		s.addClaim(target{objectID: other, Version: "v1", Kind: "ConfigMap"}, "w", "anchor")
		unlockOther, err := s.lock(t.Context(), other)
		if err != nil {
			t.Errorf("another object cannot be held: %v", err)
		}
		unlockOther()
		unlock()
		synctest.Wait()
		if n := held.Load(); n != 1 {
			t.Errorf("%d hold what is free", n)
		}
		time.Sleep(2 * time.Second)
		if n := held.Load(); n != 2 {
			t.Errorf("%d of 2 had their turn", n)
		}
	})
}

func TestLockEndsWithContext(t *testing.T) {
	s := newSharedFixture()
	unlock, err := s.lock(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.lock(ctx, s.id); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	unlock()
	if unlock, err = s.lock(t.Context(), s.id); err != nil {
		t.Errorf("nobody can hold it any more: %v", err)
	}
	unlock()
}

// ownedAt is an object as seen, owned by anchors.
func ownedAt(version string, fields byte, anchors ...types.UID) *observedObject {
	out := observedAt("u", version, fields)
	out.owners = anchors
	return out
}

func TestMissingOwnerIsDrift(t *testing.T) {
	both := []types.UID{"anchor", "anchor-x"}
	apply := func(s *inventoryFixture) {
		s.setDesired(s.id, "x", desiredState{contentHash: body, manifestHash: body, manager: "work-agent", isOwner: true})
		s.beginWrite(s.id, "x", time.Now())
		s.recordApply(s.id, "x", body, ownedAt("11", 1, both...), driftByFields)
	}
	see := func(version string, anchors ...types.UID) func(*inventoryFixture) {
		return func(s *inventoryFixture) { s.handleEvent(s.id, ownedAt(version, 1, anchors...), false, time.Time{}) }
	}
	tests := map[string]struct {
		reason string
		do     []func(*inventoryFixture)
		w, x   action
	}{
		"both own it":            {reason: "as it was applied", do: []func(*inventoryFixture){apply, see("12", both...)}},
		"a later write took one": {reason: "an apply whose answer was lost may be done late", do: []func(*inventoryFixture){apply, see("12", "anchor-x")}, w: actionAddOwner},
		"one took all":           {reason: "each has its own back", do: []func(*inventoryFixture){apply, see("12")}, w: actionAddOwner, x: actionAddOwner},
		"an answer lacks one":    {reason: "whoever wrote it", do: []func(*inventoryFixture){func(s *inventoryFixture) { s.recordApply(s.id, "w", body, ownedAt("11", 1), driftByFields) }}, w: actionAddOwner, x: actionApply},
		"it is given up":         {reason: "the reference is to go", do: []func(*inventoryFixture){apply, func(s *inventoryFixture) { s.dropOwnership(s.target(), "w", "anchor") }, see("12", "anchor-x")}},
		"its anchor is replaced": {reason: "there is none to refer to", do: []func(*inventoryFixture){apply, func(s *inventoryFixture) { s.clearAnchor(s.id, "w") }, see("12", "anchor-x")}},
		"it is only read": {
			reason: "it never owns it",
			do:     []func(*inventoryFixture){apply, func(s *inventoryFixture) { s.setDesired(s.id, "w", desiredState{contentHash: body, isPassive: true}) }, see("12", "anchor-x")},
		},
		"it is going": {reason: "nothing can be done until it is gone", do: []func(*inventoryFixture){apply, func(s *inventoryFixture) {
			going := ownedAt("12", 1)
			going.isDeleting = true
			s.handleEvent(s.id, going, false, time.Time{})
		}}},
		"it was written again": {reason: "the references were", do: []func(*inventoryFixture){apply, see("12", "anchor-x"), func(s *inventoryFixture) { s.recordOwnerWrite(s.id, ownedAt("13", 1, both...)) }}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSharedFixture()
			for _, do := range tc.do {
				s.requeued = nil
				do(s)
			}
			for work, want := range map[string]action{"w": tc.w, "x": tc.x} {
				if got, _ := s.nextAction(s.id, work, body, time.Now()); got != want {
					t.Errorf("%s: %s needs %d, want %d", tc.reason, work, got, want)
				}
				if want == actionAddOwner && !slices.Contains(s.requeued, work) {
					t.Errorf("%s: repairs %v", tc.reason, s.requeued)
				}
			}
		})
	}
}

func TestOwnerRepairsAreSlowedDown(t *testing.T) {
	s := newInventoryFixture()
	now := time.Now()
	for range freeRepairs + 1 { // the first of them finds the references in place
		s.beginWrite(s.id, "w", now)
		s.recordOwnerWrite(s.id, nil)
		s.handleEvent(s.id, ownedAt("12", 1), false, time.Time{})
	}
	if what, wait := s.nextAction(s.id, "w", body, now); what != actionAddOwner || wait == 0 {
		t.Errorf("need %d after %s", what, wait)
	}
}

func TestOtherOwnersWantTheObject(t *testing.T) {
	tests := map[string]struct {
		reason string
		do     func(*inventoryFixture)
		want   []workAnchor
	}{
		"it claims it":            {reason: "it will own it, whether or not it has written it", do: func(*inventoryFixture) {}, want: []workAnchor{{work: "x", anchor: "anchor-x"}}},
		"it gives it up, too":     {reason: "the last one deletes it", do: func(s *inventoryFixture) { s.dropOwnership(s.target(), "x", "anchor-x") }},
		"its anchor is replaced":  {reason: "it has none, and wants the object", do: func(s *inventoryFixture) { s.clearAnchor(s.id, "x") }, want: []workAnchor{{work: "x"}}},
		"it reads it":             {reason: "it is not its to keep", do: func(s *inventoryFixture) { s.setDesired(s.id, "x", desiredState{contentHash: body, isPassive: true}) }},
		"it has released it":      {reason: "it is gone from it", do: func(s *inventoryFixture) { s.releaseClaim(s.id, "x") }},
		"it has another anchor":   {reason: "the old one is gone", do: func(s *inventoryFixture) { s.addClaim(s.target(), "x", "new") }, want: []workAnchor{{work: "x", anchor: "new"}}},
		"it has been made nobody": {reason: "its anchor is to be evicted", do: func(s *inventoryFixture) { s.transferClaim(s.id, "x", "nobody") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSharedFixture()
			tc.do(s)
			if diff := cmp.Diff(tc.want, s.otherOwners(s.id, "w"), cmp.AllowUnexported(workAnchor{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReleasedAnchorTakesItsClaims(t *testing.T) {
	s := newSharedFixture()
	s.setDesired(s.id, "w", desiredState{contentHash: body, manifestHash: [32]byte{1}, manager: "work-agent", isOwner: true})
	s.setDesired(s.id, "x", desiredState{contentHash: body, manifestHash: [32]byte{2}, manager: "work-agent", isOwner: true})
	s.transferClaim(s.id, "w", "nobody")
	if diff := cmp.Diff([]string{"x"}, s.ownersOfNextWrite()); diff != "" {
		t.Errorf("owners: what is nobody's keeps what it owns, and is given nothing (-want +got):\n%s", diff)
	}
	if got := s.conflictingWorks(s.id, "x"); got != nil {
		t.Errorf("what is nobody's wants nothing, and is said to: %v", got)
	}
	s.addClaim(s.target(), "w", "new")
	if what, _ := s.nextAction(s.id, "w", body, time.Now()); what != actionApply {
		t.Error("the work does not own the object with its new anchor")
	}
	s.dropOwnership(s.target(), "nobody", "anchor")
	s.releaseClaim(s.id, "nobody")
	if diff := cmp.Diff([]string{"w", "x"}, s.ownersOfNextWrite()); diff != "" {
		t.Errorf("owners once it is evicted (-want +got):\n%s", diff)
	}
}

// A work that orphans its object moves to another hash of its hub.
func TestOrphanedObjectHasNoOwnerAfterHubMoved(t *testing.T) {
	tests := map[string]struct {
		reason string
		moves  func(e *Engine, w *work)
	}{
		"while the agent runs": {reason: "the work held the old anchor", moves: func(e *Engine, w *work) { e.releaseAnchor(w, &workSpec{hubHash: "B"}) }},
		"before it started":    {reason: "the old anchor is read", moves: func(e *Engine, w *work) { e.bindAnchor(w.policy, orphanKey("A-w"), "A-w", w.anchor) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e, w, at := anchored(t, "A")
			e.inventory.addClaim(at, w.key.String(), w.anchor.uid)
			e.requeue(e.inventory.setDesired(at.objectID, w.key.String(), desiredState{contentHash: body}))
			tc.moves(e, w)
			e.inventory.addClaim(at, w.key.String(), "anchor-B")
			e.requeue(e.inventory.setDesired(at.objectID, w.key.String(), desiredState{contentHash: body}))
			if got := e.inventory.beginWrite(at.objectID, w.key.String(), time.Now()); len(got) != 0 {
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
		cfg: Config{EvictionGrace: time.Hour}, queue: workqueue.NewTypedDelayingQueue[string](), reports: workqueue.NewTyped[string](), reporter: resource.NewSource(wire.KindWorkStatus),
		records: newRecordQueue(), works: map[string]*work{}, anchors: map[string]*work{}, unservedKinds: map[string]map[string]struct{}{},
	}
	t.Cleanup(e.queue.ShutDown)
	t.Cleanup(e.reports.ShutDown)
	var err error
	if e.metrics, err = newMetrics(nil, e.countByState); err != nil {
		t.Fatal(err)
	}
	e.inventory = newInventory(func(scope) func() { return func() {} })
	at := target{objectID: objectID{Resource: "configmaps", Namespace: "n", Name: "o"}, Version: "v1", Kind: "ConfigMap"}
	w := e.bindAnchorName(ManifestWork(), wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: spokeName, Name: "w"}, hash+"-w")
	w.anchor = &anchor{uid: types.UID("anchor-" + hash), tracked: map[objectID]trackedObject{at.objectID: {target: at, uid: "u"}}}
	return e, w, at
}

// A hub that goes back to its first hash has the anchor of that hash again: it is
// nobody's only in between.
func TestAnchorTakenOverAgainIsNotEvicted(t *testing.T) {
	e, w, at := anchored(t, "A")
	e.inventory.addClaim(at, w.key.String(), w.anchor.uid)
	e.releaseAnchor(w, &workSpec{hubHash: "B"})
	nobodys := e.lookup(orphanKey("A-w").String())
	nobodys.anchor.evictionStart = time.Now()
	if wait, err := e.evict(t.Context(), nobodys); wait == 0 || err != nil {
		t.Fatalf("in its grace: wait %s, %v", wait, err)
	}
	queued(e.queue)
	e.releaseAnchor(w, &workSpec{hubHash: "A"})
	if diff := cmp.Diff([]string{nobodys.key.String()}, queued(e.queue)); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
	e.inventory.addClaim(at, w.key.String(), "anchor-A")
	if wait, err := e.evict(t.Context(), nobodys); wait != 0 || err != nil {
		t.Errorf("it still waits %s for its eviction, %v", wait, err)
	}
	if nobodys.anchor != nil || e.lookup(nobodys.key.String()) != nil || e.anchors[ManifestWork().Dialect+"/A-w"] != w {
		t.Error("the anchor of a work that is wanted is held by what is evicted")
	}
	for _, o := range e.inventory.beginWrite(at.objectID, w.key.String(), time.Now()) {
		if o.work != w.key.String() {
			t.Errorf("the object belongs to %s, too", o.work)
		}
	}
}

// Anchors are listed anew after a failure, those that were read before among them.
func TestAnchorReadTwiceStaysWithItsWork(t *testing.T) {
	e, w, _ := anchored(t, "A")
	e.cfg.Cluster = w.key.Namespace
	if got := e.anchorWorkKey(w.policy, w.key, "A-w"); got != w.key {
		t.Errorf("it stands for %s, want %s", got, w.key)
	}
	if got := e.anchorWorkKey(w.policy, w.key, "B-w"); got != orphanKey("B-w") {
		t.Errorf("a second one stands for %s", got)
	}
}

// What a copy of a work orphans, or only reads, its anchor does not own: before the work
// itself runs again another one may write the object, and repeat references.
func TestRestoredOwnershipFollowsSpecCache(t *testing.T) {
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
			e.attachAnchor(w, w.anchor)
			body, err := json.Marshal(wire.Work{Generation: 1, HubHash: hubHashOne, Spec: tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			key := w.key.String()
			if err := e.setSpec(resource.Resource{Key: key, UID: "uid", Generation: 1, Body: body}, true); err != nil {
				t.Fatal(err)
			}
			e.restoreOwnership(key)
			e.inventory.addClaim(at, "other", "anchor-other")
			want := []workAnchor{{work: key, anchor: w.anchor.uid}, {work: "other", anchor: "anchor-other"}}
			if !tc.owns {
				want = want[1:]
			}
			got := e.inventory.beginWrite(at.objectID, "other", time.Now())
			slices.SortFunc(got, func(a, b workAnchor) int { return strings.Compare(string(a.anchor), string(b.anchor)) })
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(workAnchor{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
