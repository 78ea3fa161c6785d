// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// inventoryFixture is a table with one object of one work, applied at version 10.
type inventoryFixture struct {
	*inventory
	requeued, statusRequeued []string
	followed                 int
	id                       objectID
}

var body = [32]byte{1}

func newInventoryFixture() *inventoryFixture {
	s := &inventoryFixture{id: objectID{Resource: "configmaps", Namespace: "n", Name: "o"}}
	s.inventory = newInventory(func(scope) func() { s.followed++; return func() { s.followed-- } })
	s.addClaim(s.target(), "w", "anchor")
	s.beginWrite(s.id, "w", time.Now())
	s.recordApply(s.id, "w", body, observedAt("u", "10", 1), driftByFields)
	s.requeued, s.statusRequeued = nil, nil
	return s
}

// add records what an operation requeues.
func (s *inventoryFixture) add(r requeue) {
	s.requeued = append(s.requeued, r.works...)
	s.statusRequeued = append(s.statusRequeued, r.statuses...)
}

func (s *inventoryFixture) setDesired(id objectID, work string, want desiredState) {
	s.add(s.inventory.setDesired(id, work, want))
}

func (s *inventoryFixture) recordApply(id objectID, work string, content [32]byte, got *observedObject, by driftPolicy) {
	s.add(s.inventory.recordApply(id, work, content, got, by))
}

func (s *inventoryFixture) recordOwnerWrite(id objectID, got *observedObject) {
	s.add(s.inventory.recordOwnerWrite(id, got))
}

func (s *inventoryFixture) handleEvent(id objectID, got *observedObject, deleted bool, at time.Time, readings ...*reading) {
	s.add(s.inventory.handleEvent(id, got, deleted, at, readings...))
}

func (s *inventoryFixture) endResync(at scope, seen map[objectID]struct{}, version string) {
	s.add(s.inventory.endResync(at, seen, version))
}

func (s *inventoryFixture) releaseClaim(id objectID, work string) {
	s.add(s.inventory.releaseClaim(id, work))
}

func (s *inventoryFixture) target() target {
	return target{objectID: s.id, Version: "v1", Kind: "ConfigMap"}
}

// relist reads the scope anew, in which nothing is, at version.
func (s *inventoryFixture) relist(version string) {
	s.beginResync(scopeOf(s.target()))
	s.endResync(scopeOf(s.target()), nil, version)
}

func observedAt(uid, version string, fields byte) *observedObject {
	owners := []types.UID{"anchor", "anchor-x"}
	return &observedObject{uid: types.UID(uid), resourceVersion: version, ownFields: fieldsHash{fields}, owners: owners, health: objectHealth{status: status.CurrentStatus}}
}

func TestInventoryDetectsDrift(t *testing.T) {
	tests := map[string]struct {
		reason  string
		events  func(*inventoryFixture)
		repairs bool
		reports bool
	}{
		"our own apply comes back": {
			reason: "the event of what we wrote is no news", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "10", 1), false, time.Time{}) },
		},
		"an older event": {
			reason: "the watch lags behind our answer", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "9", 2), false, time.Time{}) },
		},
		"a status update": {
			reason: "our fields are as they were", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 1), false, time.Time{}) },
		},
		"a field was taken": {
			reason: "our fields are others now", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 2), false, time.Time{}) }, repairs: true,
		},
		"all fields were taken": {
			reason: "we own nothing any more", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 0), false, time.Time{}) }, repairs: true,
		},
		"deleted": {
			reason: "absence is drift", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 1), true, time.Time{}) }, repairs: true,
		},
		"deleted and made by somebody else": {
			reason: "the new one lacks our fields",
			events: func(s *inventoryFixture) {
				s.handleEvent(s.id, observedAt("u", "11", 1), true, time.Time{})
				s.requeued = nil
				s.handleEvent(s.id, observedAt("v", "12", 0), false, time.Time{})
			}, repairs: true,
		},
		"being deleted": {
			reason: "nothing can be done until it is gone; its health is news",
			events: func(s *inventoryFixture) {
				g := observedAt("u", "11", 1)
				g.isDeleting, g.health.status = true, status.TerminatingStatus
				s.handleEvent(s.id, g, false, time.Time{})
			}, reports: true,
		},
		"health changes": {
			reason: "that is what the hub waits for",
			events: func(s *inventoryFixture) {
				g := observedAt("u", "11", 1)
				g.health.status = status.InProgressStatus
				s.handleEvent(s.id, g, false, time.Time{})
			}, reports: true,
		},
		"drift during our own apply": {
			reason: "judged when the answer is there, which overwrote it",
			events: func(s *inventoryFixture) {
				s.beginWrite(s.id, "w", time.Now())
				s.handleEvent(s.id, observedAt("u", "11", 2), false, time.Time{})
				s.recordApply(s.id, "w", body, observedAt("u", "12", 1), driftByFields)
			},
		},
		"drift after our apply, told before its answer": {
			reason: "the event is newer than the answer",
			events: func(s *inventoryFixture) {
				s.beginWrite(s.id, "w", time.Now())
				s.handleEvent(s.id, observedAt("u", "13", 2), false, time.Time{})
				s.recordApply(s.id, "w", body, observedAt("u", "12", 1), driftByFields)
			}, repairs: true,
		},
		"deleted after our apply, told before its answer": {
			reason: "the answer is about an object that is gone",
			events: func(s *inventoryFixture) {
				s.beginWrite(s.id, "w", time.Now())
				s.handleEvent(s.id, observedAt("u", "13", 1), true, time.Time{})
				s.requeued = nil
				s.recordApply(s.id, "w", body, observedAt("u", "12", 1), driftByFields)
			}, repairs: true,
		},
		"a relist without it": {
			reason: "it was deleted while nobody watched", events: func(s *inventoryFixture) { s.relist("20") }, repairs: true,
		},
		"a relist from before our apply": {
			reason: "it could not be in there", events: func(s *inventoryFixture) { s.relist("9") },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newInventoryFixture()
			tc.events(s)
			if got := len(s.requeued) > 0; got != tc.repairs {
				t.Errorf("%s: repairs %v", tc.reason, s.requeued)
			}
			if got := len(s.statusRequeued) > 0; got != tc.reports {
				t.Errorf("%s: reports %v", tc.reason, s.statusRequeued)
			}
		})
	}
}

func TestSharedObjectHasOneWriter(t *testing.T) {
	s := newInventoryFixture()
	s.addClaim(s.target(), "x", "anchor-x")
	if what, _ := s.nextAction(s.id, "x", body, time.Now()); what != actionApply {
		t.Error("a work that never applied has nothing to do")
	}
	owners := s.beginWrite(s.id, "x", time.Now())
	if diff := cmp.Diff([]string{"w", "x"}, []string{owners[0].work, owners[1].work}); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	s.recordApply(s.id, "x", body, observedAt("u", "11", 3), driftByFields)
	s.handleEvent(s.id, observedAt("u", "12", 4), false, time.Time{})
	if diff := cmp.Diff([]string{"x"}, s.requeued); diff != "" {
		t.Errorf("the last writer alone repairs (-want +got):\n%s", diff)
	}
	if what, _ := s.nextAction(s.id, "w", body, time.Now()); what != actionNone {
		t.Error("the other one fights back")
	}
	s.requeued = nil
	s.releaseClaim(s.id, "x")
	if !slices.Contains(s.requeued, "w") {
		t.Error("the heir is not told")
	}
	if what, _ := s.nextAction(s.id, "w", body, time.Now()); what != actionApply {
		t.Error("the heir does not apply its own content")
	}
	s.releaseClaim(s.id, "w")
	if s.followed != 0 || len(s.objects) != 0 || len(s.scopes) != 0 {
		t.Errorf("left: %d watches, %d objects, %d scopes", s.followed, len(s.objects), len(s.scopes))
	}
}

func TestRepeatedRepairsAreSlowedDown(t *testing.T) {
	var p repairLimit
	now := time.Now()
	for range freeRepairs {
		if w := p.delay(now); w != 0 {
			t.Fatalf("a free repair waits %s", w)
		}
		p.recordRepair(now)
	}
	last := time.Duration(0)
	for range 12 {
		w := p.delay(now)
		if w <= 0 || w < last || w > maxRepairDelay {
			t.Fatalf("after %s comes %s", last, w)
		}
		last = w
		now = now.Add(w)
		p.recordRepair(now)
	}
	if last != maxRepairDelay {
		t.Errorf("the longest wait is %s", last)
	}
	if w := p.delay(now.Add(repairWindow + time.Second)); w != 0 {
		t.Errorf("after a quiet time a repair waits %s", w)
	}
}

func TestFirstEventTimeIsKept(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	unhealthy := func(version string) *observedObject {
		out := observedAt("u", version, 1)
		out.health.status = status.InProgressStatus
		return out
	}
	tests := map[string]struct {
		reason string
		events func(*inventoryFixture)
		want   time.Time
	}{
		"nothing":          {reason: "there is no event", events: func(*inventoryFixture) {}},
		"an event":         {reason: "its health is another", events: func(s *inventoryFixture) { s.handleEvent(s.id, unhealthy("11"), false, first) }, want: first},
		"no news":          {reason: "the status does not tell of it", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 1), false, first) }},
		"an end":           {reason: "it is gone", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 1), true, first) }, want: first},
		"drift":            {reason: "it is repaired, and what comes of that is told", events: func(s *inventoryFixture) { s.handleEvent(s.id, observedAt("u", "11", 2), false, first) }, want: first},
		"at the beginning": {reason: "nobody knows since when it is so", events: func(s *inventoryFixture) { s.handleEvent(s.id, unhealthy("11"), false, time.Time{}) }},
		"two events": {
			reason: "the hub waits since the first", want: first,
			events: func(s *inventoryFixture) {
				s.handleEvent(s.id, unhealthy("11"), false, first)
				s.handleEvent(s.id, observedAt("u", "12", 1), false, second)
			},
		},
		"one after it was told": {
			reason: "the first is no news any more", want: second,
			events: func(s *inventoryFixture) {
				s.handleEvent(s.id, unhealthy("11"), false, first)
				s.takeFirstEvent("w")
				s.handleEvent(s.id, observedAt("u", "12", 1), false, second)
			},
		},
		"a work that is none": {
			reason: "only who claims the object tells of it",
			events: func(s *inventoryFixture) { s.handleEvent(objectID{Name: "other"}, unhealthy("11"), false, first) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newInventoryFixture()
			tc.events(s)
			if got := s.takeFirstEvent("w"); !got.Equal(tc.want) {
				t.Errorf("%s: since %s, want %s", tc.reason, got, tc.want)
			}
			if len(s.firstEvents) != 0 {
				t.Errorf("kept %v", s.firstEvents)
			}
		})
	}
}
