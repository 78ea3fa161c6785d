// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/manifest"
)

// fixture is a table with one object of one work, applied at version 10.
type fixture struct {
	*Inventory
	requeued, statusRequeued []string
	followed                 int
	id                       manifest.ObjectID
}

var body = [32]byte{1}

func newFixture() *fixture {
	s := &fixture{id: manifest.ObjectID{Resource: "configmaps", Namespace: "n", Name: "o"}}
	s.Inventory = New(func(Scope) func() { s.followed++; return func() { s.followed-- } })
	s.AddClaim(s.target(), "w", "anchor")
	s.BeginWrite(s.id, "w", time.Now())
	s.recordApply(s.id, "w", body, observedAt("u", "10", 1), DriftByFields)
	s.requeued, s.statusRequeued = nil, nil
	return s
}

// add records what an operation requeues.
func (s *fixture) add(r Requeue) {
	s.requeued = append(s.requeued, r.Works...)
	s.statusRequeued = append(s.statusRequeued, r.Statuses...)
}

func (s *fixture) setDesired(id manifest.ObjectID, work string, want DesiredState) {
	s.add(s.SetDesired(id, work, want))
}

func (s *fixture) recordApply(id manifest.ObjectID, work string, content [32]byte, got *ObservedObject, by DriftPolicy) {
	s.add(s.RecordApply(id, work, content, got, by))
}

func (s *fixture) recordOwnerWrite(id manifest.ObjectID, got *ObservedObject) {
	s.add(s.RecordOwnerWrite(id, got))
}

func (s *fixture) handleEvent(id manifest.ObjectID, got *ObservedObject, deleted bool, at time.Time, readings ...*Reading) {
	s.add(s.Inventory.handleEvent(id, got, deleted, at, readings...))
}

func (s *fixture) endResync(at Scope, seen map[manifest.ObjectID]struct{}, version string) {
	s.add(s.Inventory.endResync(at, seen, version))
}

func (s *fixture) releaseClaim(id manifest.ObjectID, work string) {
	s.add(s.ReleaseClaim(id, work))
}

func (s *fixture) target() manifest.Target {
	return manifest.Target{ObjectID: s.id, Version: "v1", Kind: "ConfigMap"}
}

// relist reads the scope anew, in which nothing is, at version.
func (s *fixture) relist(version string) {
	s.beginResync(scopeOf(s.target()))
	s.endResync(scopeOf(s.target()), nil, version)
}

func observedAt(uid, version string, fields byte) *ObservedObject {
	owners := []types.UID{"anchor", "anchor-x"}
	return &ObservedObject{UID: types.UID(uid), ResourceVersion: version, ownFields: fieldsHash{fields}, Owners: owners, Health: Health{Status: status.CurrentStatus}}
}

func TestInventoryDetectsDrift(t *testing.T) {
	tests := map[string]struct {
		reason  string
		events  func(*fixture)
		repairs bool
		reports bool
	}{
		"our own apply comes back": {
			reason: "the event of what we wrote is no news", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "10", 1), false, time.Time{}) },
		},
		"an older event": {
			reason: "the watch lags behind our answer", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "9", 2), false, time.Time{}) },
		},
		"a status update": {
			reason: "our fields are as they were", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 1), false, time.Time{}) },
		},
		"a field was taken": {
			reason: "our fields are others now", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 2), false, time.Time{}) }, repairs: true,
		},
		"all fields were taken": {
			reason: "we own nothing any more", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 0), false, time.Time{}) }, repairs: true,
		},
		"deleted": {
			reason: "absence is drift", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 1), true, time.Time{}) }, repairs: true,
		},
		"deleted and made by somebody else": {
			reason: "the new one lacks our fields",
			events: func(s *fixture) {
				s.handleEvent(s.id, observedAt("u", "11", 1), true, time.Time{})
				s.requeued = nil
				s.handleEvent(s.id, observedAt("v", "12", 0), false, time.Time{})
			}, repairs: true,
		},
		"being deleted": {
			reason: "nothing can be done until it is gone; its health is news",
			events: func(s *fixture) {
				g := observedAt("u", "11", 1)
				g.IsDeleting, g.Health.Status = true, status.TerminatingStatus
				s.handleEvent(s.id, g, false, time.Time{})
			}, reports: true,
		},
		"health changes": {
			reason: "that is what the hub waits for",
			events: func(s *fixture) {
				g := observedAt("u", "11", 1)
				g.Health.Status = status.InProgressStatus
				s.handleEvent(s.id, g, false, time.Time{})
			}, reports: true,
		},
		"drift during our own apply": {
			reason: "judged when the answer is there, which overwrote it",
			events: func(s *fixture) {
				s.BeginWrite(s.id, "w", time.Now())
				s.handleEvent(s.id, observedAt("u", "11", 2), false, time.Time{})
				s.recordApply(s.id, "w", body, observedAt("u", "12", 1), DriftByFields)
			},
		},
		"drift after our apply, told before its answer": {
			reason: "the event is newer than the answer",
			events: func(s *fixture) {
				s.BeginWrite(s.id, "w", time.Now())
				s.handleEvent(s.id, observedAt("u", "13", 2), false, time.Time{})
				s.recordApply(s.id, "w", body, observedAt("u", "12", 1), DriftByFields)
			}, repairs: true,
		},
		"deleted after our apply, told before its answer": {
			reason: "the answer is about an object that is gone",
			events: func(s *fixture) {
				s.BeginWrite(s.id, "w", time.Now())
				s.handleEvent(s.id, observedAt("u", "13", 1), true, time.Time{})
				s.requeued = nil
				s.recordApply(s.id, "w", body, observedAt("u", "12", 1), DriftByFields)
			}, repairs: true,
		},
		"a relist without it": {
			reason: "it was deleted while nobody watched", events: func(s *fixture) { s.relist("20") }, repairs: true,
		},
		"a relist from before our apply": {
			reason: "it could not be in there", events: func(s *fixture) { s.relist("9") },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newFixture()
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
	s := newFixture()
	s.AddClaim(s.target(), "x", "anchor-x")
	if what, _ := s.NextAction(s.id, "x", body, time.Now()); what != ActionApply {
		t.Error("a work that never applied has nothing to do")
	}
	owners := s.BeginWrite(s.id, "x", time.Now())
	if diff := cmp.Diff([]string{"w", "x"}, []string{owners[0].Work, owners[1].Work}); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	s.recordApply(s.id, "x", body, observedAt("u", "11", 3), DriftByFields)
	s.handleEvent(s.id, observedAt("u", "12", 4), false, time.Time{})
	if diff := cmp.Diff([]string{"x"}, s.requeued); diff != "" {
		t.Errorf("the last writer alone repairs (-want +got):\n%s", diff)
	}
	if what, _ := s.NextAction(s.id, "w", body, time.Now()); what != ActionNone {
		t.Error("the other one fights back")
	}
	s.requeued = nil
	s.releaseClaim(s.id, "x")
	if !slices.Contains(s.requeued, "w") {
		t.Error("the heir is not told")
	}
	if what, _ := s.NextAction(s.id, "w", body, time.Now()); what != ActionApply {
		t.Error("the heir does not apply its own content")
	}
	s.releaseClaim(s.id, "w")
	if s.followed != 0 || len(s.objects) != 0 || len(s.scopes) != 0 {
		t.Errorf("left: %d watches, %d objects, %d scopes", s.followed, len(s.objects), len(s.scopes))
	}
}

func TestFirstEventTimeIsKept(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	unhealthy := func(version string) *ObservedObject {
		out := observedAt("u", version, 1)
		out.Health.Status = status.InProgressStatus
		return out
	}
	tests := map[string]struct {
		reason string
		events func(*fixture)
		want   time.Time
	}{
		"nothing":          {reason: "there is no event", events: func(*fixture) {}},
		"an event":         {reason: "its health is another", events: func(s *fixture) { s.handleEvent(s.id, unhealthy("11"), false, first) }, want: first},
		"no news":          {reason: "the status does not tell of it", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 1), false, first) }},
		"an end":           {reason: "it is gone", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 1), true, first) }, want: first},
		"drift":            {reason: "it is repaired, and what comes of that is told", events: func(s *fixture) { s.handleEvent(s.id, observedAt("u", "11", 2), false, first) }, want: first},
		"at the beginning": {reason: "nobody knows since when it is so", events: func(s *fixture) { s.handleEvent(s.id, unhealthy("11"), false, time.Time{}) }},
		"two events": {
			reason: "the hub waits since the first", want: first,
			events: func(s *fixture) {
				s.handleEvent(s.id, unhealthy("11"), false, first)
				s.handleEvent(s.id, observedAt("u", "12", 1), false, second)
			},
		},
		"one after it was told": {
			reason: "the first is no news any more", want: second,
			events: func(s *fixture) {
				s.handleEvent(s.id, unhealthy("11"), false, first)
				s.TakeFirstEvent("w")
				s.handleEvent(s.id, observedAt("u", "12", 1), false, second)
			},
		},
		"a work that is none": {
			reason: "only who claims the object tells of it",
			events: func(s *fixture) {
				s.handleEvent(manifest.ObjectID{Name: "other"}, unhealthy("11"), false, first)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newFixture()
			tc.events(s)
			if got := s.TakeFirstEvent("w"); !got.Equal(tc.want) {
				t.Errorf("%s: since %s, want %s", tc.reason, got, tc.want)
			}
			if len(s.firstEvents) != 0 {
				t.Errorf("kept %v", s.firstEvents)
			}
		})
	}
}
