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

// scene is a table with one object of one work, applied at version 10.
type scene struct {
	*table
	repairs, reports []string
	followed         int
	id               objectID
}

var body = [32]byte{1}

func newScene() *scene {
	s := &scene{id: objectID{Resource: "configmaps", Namespace: "n", Name: "o"}}
	s.table = newTable(
		func(scope) func() { s.followed++; return func() { s.followed-- } },
		func(w string) { s.repairs = append(s.repairs, w) },
		func(w string) { s.reports = append(s.reports, w) })
	s.claim(s.target(), "w", "anchor")
	s.begin(s.id, "w", time.Now())
	s.finish(s.id, "w", body, seen("u", "10", 1), guardFields)
	s.repairs, s.reports = nil, nil
	return s
}

func (s *scene) target() target { return target{objectID: s.id, Version: "v1", Kind: "ConfigMap"} }

// relist reads the scope anew, in which nothing is, at version.
func (s *scene) relist(version string) {
	s.expect(scopeOf(s.target()))
	s.resync(scopeOf(s.target()), nil, version)
}

func seen(uid, version string, fields byte) *sighting {
	owners := []types.UID{"anchor", "anchor-x"}
	return &sighting{uid: types.UID(uid), version: version, fields: fieldsHash{fields}, owners: owners, health: health{status: status.CurrentStatus}}
}

func TestDriftIsToldFromNoise(t *testing.T) {
	tests := map[string]struct {
		reason  string
		events  func(*scene)
		repairs bool
		reports bool
	}{
		"our own apply comes back": {
			reason: "the event of what we wrote is no news", events: func(s *scene) { s.observe(s.id, seen("u", "10", 1), false, time.Time{}) },
		},
		"an older event": {
			reason: "the watch lags behind our answer", events: func(s *scene) { s.observe(s.id, seen("u", "9", 2), false, time.Time{}) },
		},
		"a status update": {
			reason: "our fields are as they were", events: func(s *scene) { s.observe(s.id, seen("u", "11", 1), false, time.Time{}) },
		},
		"a field was taken": {
			reason: "our fields are others now", events: func(s *scene) { s.observe(s.id, seen("u", "11", 2), false, time.Time{}) }, repairs: true,
		},
		"all fields were taken": {
			reason: "we own nothing any more", events: func(s *scene) { s.observe(s.id, seen("u", "11", 0), false, time.Time{}) }, repairs: true,
		},
		"deleted": {
			reason: "absence is drift", events: func(s *scene) { s.observe(s.id, seen("u", "11", 1), true, time.Time{}) }, repairs: true,
		},
		"deleted and made by somebody else": {
			reason: "the new one lacks our fields",
			events: func(s *scene) {
				s.observe(s.id, seen("u", "11", 1), true, time.Time{})
				s.repairs = nil
				s.observe(s.id, seen("v", "12", 0), false, time.Time{})
			}, repairs: true,
		},
		"being deleted": {
			reason: "nothing can be done until it is gone; its health is news",
			events: func(s *scene) {
				g := seen("u", "11", 1)
				g.deleting, g.health.status = true, status.TerminatingStatus
				s.observe(s.id, g, false, time.Time{})
			}, reports: true,
		},
		"health changes": {
			reason: "that is what the hub waits for",
			events: func(s *scene) {
				g := seen("u", "11", 1)
				g.health.status = status.InProgressStatus
				s.observe(s.id, g, false, time.Time{})
			}, reports: true,
		},
		"drift during our own apply": {
			reason: "judged when the answer is there, which overwrote it",
			events: func(s *scene) {
				s.begin(s.id, "w", time.Now())
				s.observe(s.id, seen("u", "11", 2), false, time.Time{})
				s.finish(s.id, "w", body, seen("u", "12", 1), guardFields)
			},
		},
		"drift after our apply, told before its answer": {
			reason: "the event is newer than the answer",
			events: func(s *scene) {
				s.begin(s.id, "w", time.Now())
				s.observe(s.id, seen("u", "13", 2), false, time.Time{})
				s.finish(s.id, "w", body, seen("u", "12", 1), guardFields)
			}, repairs: true,
		},
		"deleted after our apply, told before its answer": {
			reason: "the answer is about an object that is gone",
			events: func(s *scene) {
				s.begin(s.id, "w", time.Now())
				s.observe(s.id, seen("u", "13", 1), true, time.Time{})
				s.repairs = nil
				s.finish(s.id, "w", body, seen("u", "12", 1), guardFields)
			}, repairs: true,
		},
		"a relist without it": {
			reason: "it was deleted while nobody watched", events: func(s *scene) { s.relist("20") }, repairs: true,
		},
		"a relist from before our apply": {
			reason: "it could not be in there", events: func(s *scene) { s.relist("9") },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			tc.events(s)
			if got := len(s.repairs) > 0; got != tc.repairs {
				t.Errorf("%s: repairs %v", tc.reason, s.repairs)
			}
			if got := len(s.reports) > 0; got != tc.reports {
				t.Errorf("%s: reports %v", tc.reason, s.reports)
			}
		})
	}
}

func TestSharedObjectHasOneWriter(t *testing.T) {
	s := newScene()
	s.claim(s.target(), "x", "anchor-x")
	if what, _ := s.due(s.id, "x", body, time.Now()); what != needApply {
		t.Error("a work that never applied has nothing to do")
	}
	owners := s.begin(s.id, "x", time.Now())
	if diff := cmp.Diff([]string{"w", "x"}, []string{owners[0].work, owners[1].work}); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	s.finish(s.id, "x", body, seen("u", "11", 3), guardFields)
	s.observe(s.id, seen("u", "12", 4), false, time.Time{})
	if diff := cmp.Diff([]string{"x"}, s.repairs); diff != "" {
		t.Errorf("the last writer alone repairs (-want +got):\n%s", diff)
	}
	if what, _ := s.due(s.id, "w", body, time.Now()); what != needNothing {
		t.Error("the other one fights back")
	}
	s.repairs = nil
	s.release(s.id, "x")
	if !slices.Contains(s.repairs, "w") {
		t.Error("the heir is not told")
	}
	if what, _ := s.due(s.id, "w", body, time.Now()); what != needApply {
		t.Error("the heir does not apply its own content")
	}
	s.release(s.id, "w")
	if s.followed != 0 || len(s.objects) != 0 || len(s.scopes) != 0 {
		t.Errorf("left: %d watches, %d objects, %d scopes", s.followed, len(s.objects), len(s.scopes))
	}
}

func TestFightIsSlowedDown(t *testing.T) {
	var p pace
	now := time.Now()
	for range freeRepairs {
		if w := p.wait(now); w != 0 {
			t.Fatalf("a free repair waits %s", w)
		}
		p.spend(now)
	}
	last := time.Duration(0)
	for range 12 {
		w := p.wait(now)
		if w <= 0 || w < last || w > longestDamped {
			t.Fatalf("after %s comes %s", last, w)
		}
		last = w
		now = now.Add(w)
		p.spend(now)
	}
	if last != longestDamped {
		t.Errorf("the longest wait is %s", last)
	}
	if w := p.wait(now.Add(repairWindow + time.Second)); w != 0 {
		t.Errorf("after a quiet time a repair waits %s", w)
	}
}

func TestAStatusIsAsOldAsTheFirstEventThatItTellsOf(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	unhealthy := func(version string) *sighting {
		out := seen("u", version, 1)
		out.health.status = status.InProgressStatus
		return out
	}
	tests := map[string]struct {
		reason string
		events func(*scene)
		want   time.Time
	}{
		"nothing":          {reason: "there is no event", events: func(*scene) {}},
		"an event":         {reason: "its health is another", events: func(s *scene) { s.observe(s.id, unhealthy("11"), false, first) }, want: first},
		"no news":          {reason: "the status does not tell of it", events: func(s *scene) { s.observe(s.id, seen("u", "11", 1), false, first) }},
		"an end":           {reason: "it is gone", events: func(s *scene) { s.observe(s.id, seen("u", "11", 1), true, first) }, want: first},
		"drift":            {reason: "it is repaired, and what comes of that is told", events: func(s *scene) { s.observe(s.id, seen("u", "11", 2), false, first) }, want: first},
		"at the beginning": {reason: "nobody knows since when it is so", events: func(s *scene) { s.observe(s.id, unhealthy("11"), false, time.Time{}) }},
		"two events": {
			reason: "the hub waits since the first", want: first,
			events: func(s *scene) {
				s.observe(s.id, unhealthy("11"), false, first)
				s.observe(s.id, seen("u", "12", 1), false, second)
			},
		},
		"one after it was told": {
			reason: "the first is no news any more", want: second,
			events: func(s *scene) {
				s.observe(s.id, unhealthy("11"), false, first)
				s.news("w")
				s.observe(s.id, seen("u", "12", 1), false, second)
			},
		},
		"a work that is none": {
			reason: "only who claims the object tells of it",
			events: func(s *scene) { s.observe(objectID{Name: "other"}, unhealthy("11"), false, first) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			tc.events(s)
			if got := s.news("w"); !got.Equal(tc.want) {
				t.Errorf("%s: since %s, want %s", tc.reason, got, tc.want)
			}
			if len(s.since) != 0 {
				t.Errorf("kept %v", s.since)
			}
		})
	}
}
