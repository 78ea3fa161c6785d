// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// newSharedFixture is a scene in which x claims the object, too.
func newSharedFixture() *fixture {
	s := newFixture()
	s.AddClaim(s.target(), "x", "anchor-x")
	s.requeued, s.statusRequeued = nil, nil
	return s
}

// ownersOfNextWrite are the works whose references an apply of x repeats that begins now.
func (s *fixture) ownersOfNextWrite() []string {
	var works []string
	for _, o := range s.BeginWrite(s.id, "x", time.Now()) {
		works = append(works, o.Work)
	}
	s.recordApply(s.id, "x", body, nil, DriftByFields)
	return works
}

func TestDroppedOwnershipIsNotRepeated(t *testing.T) {
	alone, both := []string{"x"}, []string{"w", "x"}
	wants := DesiredState{ContentHash: body, ManifestHash: body, IsOwner: true}
	tests := map[string]struct {
		reason string
		do     func(*fixture)
		want   []string
	}{
		"nothing happened":    {reason: "both own the object", do: func(*fixture) {}, want: both},
		"waived":              {reason: "the reference is about to go", do: func(s *fixture) { s.DropOwnership(s.target(), "w", "anchor") }, want: alone},
		"waived and released": {reason: "it has gone", do: func(s *fixture) { s.DropOwnership(s.target(), "w", "anchor"); s.releaseClaim(s.id, "w") }, want: alone},
		"waived twice": {
			reason: "that the removal is tried again does not restore it",
			do: func(s *fixture) {
				s.DropOwnership(s.target(), "w", "anchor")
				s.DropOwnership(s.target(), "w", "anchor")
			}, want: alone,
		},
		"claimed again": {
			reason: "the anchor still lists the object, and that is all",
			do: func(s *fixture) {
				s.DropOwnership(s.target(), "w", "anchor")
				s.AddClaim(s.target(), "w", "anchor")
			}, want: alone,
		},
		"claimed for another anchor": {
			reason: "what was waived was the old one's",
			do: func(s *fixture) {
				s.DropOwnership(s.target(), "w", "anchor")
				s.AddClaim(s.target(), "w", "another")
			}, want: both,
		},
		"wanted again": {
			reason: "the manifest came back before the reference had gone",
			do:     func(s *fixture) { s.DropOwnership(s.target(), "w", "anchor"); s.setDesired(s.id, "w", wants) }, want: both,
		},
		"orphaned": {reason: "the work lets go of the object and stays", do: func(s *fixture) { s.setDesired(s.id, "w", DesiredState{ContentHash: body}) }, want: alone},
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
	s.DropOwnership(s.target(), "w", "anchor")
	s.setDesired(s.id, "w", DesiredState{ContentHash: body, ManifestHash: body, IsOwner: true})
	if what, _ := s.NextAction(s.id, "w", body, time.Now()); what != ActionApply {
		t.Error("its reference may be gone, and nobody writes it")
	}
}

// What another work wrote last is not written by a work that has given it up.
func TestDroppedObjectIsNotAppliedForOwner(t *testing.T) {
	s := newSharedFixture()
	s.markSuperseded(s.id, "w", body)
	s.DropOwnership(s.target(), "w", "anchor")
	s.setDesired(s.id, "w", DesiredState{ContentHash: body, ManifestHash: body})
	if what, _ := s.NextAction(s.id, "w", body, time.Now()); what == ActionApply {
		t.Error("it is applied again, and no reference of the work is missing")
	}
}

// Two writes of one object at once carry the owners known when each began: the later
// one to arrive could withdraw what the other wrote.
func TestLockAdmitsOneWorkAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedFixture()
		unlock, err := s.Lock(t.Context(), s.id)
		if err != nil {
			t.Fatal(err)
		}
		var held atomic.Int32
		for range 2 {
			go func() {
				unlock, err := s.Lock(t.Context(), s.id)
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
		s.AddClaim(manifest.Target{ObjectID: other, Version: "v1", Kind: "ConfigMap"}, "w", "anchor")
		unlockOther, err := s.Lock(t.Context(), other)
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
	unlock, err := s.Lock(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Lock(ctx, s.id); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	unlock()
	if unlock, err = s.Lock(t.Context(), s.id); err != nil {
		t.Errorf("nobody can hold it any more: %v", err)
	}
	unlock()
}

// ownedAt is an object as seen, owned by anchors.
func ownedAt(version string, fields byte, anchors ...types.UID) *ObservedObject {
	out := observedAt("u", version, fields)
	out.Owners = anchors
	return out
}

func TestMissingOwnerIsDrift(t *testing.T) {
	both := []types.UID{"anchor", "anchor-x"}
	apply := func(s *fixture) {
		s.setDesired(s.id, "x", DesiredState{ContentHash: body, ManifestHash: body, Manager: "work-agent", IsOwner: true})
		s.BeginWrite(s.id, "x", time.Now())
		s.recordApply(s.id, "x", body, ownedAt("11", 1, both...), DriftByFields)
	}
	see := func(version string, anchors ...types.UID) func(*fixture) {
		return func(s *fixture) { s.handleEvent(s.id, ownedAt(version, 1, anchors...), false, time.Time{}) }
	}
	tests := map[string]struct {
		reason string
		do     []func(*fixture)
		w, x   Action
	}{
		"both own it":            {reason: "as it was applied", do: []func(*fixture){apply, see("12", both...)}},
		"a later write took one": {reason: "an apply whose answer was lost may be done late", do: []func(*fixture){apply, see("12", "anchor-x")}, w: ActionAddOwner},
		"one took all":           {reason: "each has its own back", do: []func(*fixture){apply, see("12")}, w: ActionAddOwner, x: ActionAddOwner},
		"an answer lacks one":    {reason: "whoever wrote it", do: []func(*fixture){func(s *fixture) { s.recordApply(s.id, "w", body, ownedAt("11", 1), DriftByFields) }}, w: ActionAddOwner, x: ActionApply},
		"it is given up":         {reason: "the reference is to go", do: []func(*fixture){apply, func(s *fixture) { s.DropOwnership(s.target(), "w", "anchor") }, see("12", "anchor-x")}},
		"its anchor is replaced": {reason: "there is none to refer to", do: []func(*fixture){apply, func(s *fixture) { s.ClearAnchor(s.id, "w") }, see("12", "anchor-x")}},
		"it is only read": {
			reason: "it never owns it",
			do:     []func(*fixture){apply, func(s *fixture) { s.setDesired(s.id, "w", DesiredState{ContentHash: body, IsPassive: true}) }, see("12", "anchor-x")},
		},
		"it is going": {reason: "nothing can be done until it is gone", do: []func(*fixture){apply, func(s *fixture) {
			going := ownedAt("12", 1)
			going.IsDeleting = true
			s.handleEvent(s.id, going, false, time.Time{})
		}}},
		"it was written again": {reason: "the references were", do: []func(*fixture){apply, see("12", "anchor-x"), func(s *fixture) { s.recordOwnerWrite(s.id, ownedAt("13", 1, both...)) }}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSharedFixture()
			for _, do := range tc.do {
				s.requeued = nil
				do(s)
			}
			for work, want := range map[string]Action{"w": tc.w, "x": tc.x} {
				if got, _ := s.NextAction(s.id, work, body, time.Now()); got != want {
					t.Errorf("%s: %s needs %d, want %d", tc.reason, work, got, want)
				}
				if want == ActionAddOwner && !slices.Contains(s.requeued, work) {
					t.Errorf("%s: repairs %v", tc.reason, s.requeued)
				}
			}
		})
	}
}

func TestOwnerRepairsAreSlowedDown(t *testing.T) {
	s := newFixture()
	now := time.Now()
	for range freeRepairs + 1 { // the first of them finds the references in place
		s.BeginWrite(s.id, "w", now)
		s.recordOwnerWrite(s.id, nil)
		s.handleEvent(s.id, ownedAt("12", 1), false, time.Time{})
	}
	if what, wait := s.NextAction(s.id, "w", body, now); what != ActionAddOwner || wait == 0 {
		t.Errorf("need %d after %s", what, wait)
	}
}

func TestOtherOwnersWantTheObject(t *testing.T) {
	tests := map[string]struct {
		reason string
		do     func(*fixture)
		want   []Owner
	}{
		"it claims it":            {reason: "it will own it, whether or not it has written it", do: func(*fixture) {}, want: []Owner{{Work: "x", Anchor: "anchor-x"}}},
		"it gives it up, too":     {reason: "the last one deletes it", do: func(s *fixture) { s.DropOwnership(s.target(), "x", "anchor-x") }},
		"its anchor is replaced":  {reason: "it has none, and wants the object", do: func(s *fixture) { s.ClearAnchor(s.id, "x") }, want: []Owner{{Work: "x"}}},
		"it reads it":             {reason: "it is not its to keep", do: func(s *fixture) { s.setDesired(s.id, "x", DesiredState{ContentHash: body, IsPassive: true}) }},
		"it has released it":      {reason: "it is gone from it", do: func(s *fixture) { s.releaseClaim(s.id, "x") }},
		"it has another anchor":   {reason: "the old one is gone", do: func(s *fixture) { s.AddClaim(s.target(), "x", "new") }, want: []Owner{{Work: "x", Anchor: "new"}}},
		"it has been made nobody": {reason: "its anchor is to be evicted", do: func(s *fixture) { s.TransferClaim(s.id, "x", "nobody") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSharedFixture()
			tc.do(s)
			if diff := cmp.Diff(tc.want, s.OtherOwners(s.id, "w"), cmp.AllowUnexported(Owner{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReleasedAnchorTakesItsClaims(t *testing.T) {
	s := newSharedFixture()
	s.setDesired(s.id, "w", DesiredState{ContentHash: body, ManifestHash: [32]byte{1}, Manager: "work-agent", IsOwner: true})
	s.setDesired(s.id, "x", DesiredState{ContentHash: body, ManifestHash: [32]byte{2}, Manager: "work-agent", IsOwner: true})
	s.TransferClaim(s.id, "w", "nobody")
	if diff := cmp.Diff([]string{"x"}, s.ownersOfNextWrite()); diff != "" {
		t.Errorf("owners: what is nobody's keeps what it owns, and is given nothing (-want +got):\n%s", diff)
	}
	if got := s.ConflictingWorks(s.id, "x"); got != nil {
		t.Errorf("what is nobody's wants nothing, and is said to: %v", got)
	}
	s.AddClaim(s.target(), "w", "new")
	if what, _ := s.NextAction(s.id, "w", body, time.Now()); what != ActionApply {
		t.Error("the work does not own the object with its new anchor")
	}
	s.DropOwnership(s.target(), "nobody", "anchor")
	s.releaseClaim(s.id, "nobody")
	if diff := cmp.Diff([]string{"w", "x"}, s.ownersOfNextWrite()); diff != "" {
		t.Errorf("owners once it is evicted (-want +got):\n%s", diff)
	}
}
