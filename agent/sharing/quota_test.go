// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// within is a quota of so many objects.
func within(objects int) wire.SharedSize {
	return wire.SharedSize{Objects: objects, Bytes: muchRoom().Bytes}
}

// createObjects makes objects of a side, named n0, n1 and so on.
func (r *rig) createObjects(of *fakeStore, count int) {
	for i := range count {
		r.createObject(of, fmt.Sprintf("n%d", i), spec("a", "x"))
	}
}

// quotaMessage is what the agent says of what waits.
func (r *rig) quotaMessage() string {
	if reached := r.up.lastState().QuotaReached; reached != nil {
		return reached.Reason + " " + reached.Message
	}
	return ""
}

// A hub that has ever more objects, and selects others each time.
func TestAgentQuotaLimitsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare(), quota: within(5)})
		r.createObject(r.spoke, "own", spec("a", "x"))
		for round := range 4 {
			group := fmt.Sprintf("g%d", round)
			r.up.edit(func(s *wire.Share) { s.Selector = "group=" + group })
			for i := range 10 {
				r.createObject(r.hub, fmt.Sprintf("%s-%d", group, i), sharedobject.Content{"metadata": map[string]any{"labels": map[string]any{"group": group}}})
			}
			time.Sleep(time.Minute)
			if round == 2 {
				r.crash()
				r.start()
				r.connect()
				time.Sleep(time.Minute)
			}
		}
		if n := len(r.spoke.names()); n != 5 {
			t.Errorf("%d objects are in the cluster, want 5: %v", n, r.spoke.names())
		}
		if got := r.quotaMessage(); !strings.HasPrefix(got, "TooManyObjects cluster: the quota of 5 objects (shared.quota of the agent) is reached") {
			t.Errorf("the hub is told %q", got)
		}
	})
}

// Else each share would count what it has seen, and two would make more than is allowed.
func TestOverlappingShareIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare(), quota: within(2)})
		settle()
		e := r.process.engine
		second := defaultShare()
		body, err := json.Marshal(second)
		if err != nil {
			t.Fatal(err)
		}
		problem := func() string {
			s := e.getOrCreateShare("second")
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.problem == nil {
				return ""
			}
			return s.problem.Reason + " " + s.problem.Message
		}
		e.handleShare(resource.Resource{Key: "second", UID: "share-2", Generation: 1, Body: body})
		settle()
		if got, want := problem(), `Overlap cluster: SharedResource "widgets" shares the same objects`; got != want {
			t.Errorf("problem %q, want %q", got, want)
		}
		e.handleShareDeletion(shareName)
		settle()
		if got := problem(); got != "" {
			t.Errorf("problem %q, and the other share is no more", got)
		}
	})
}

func TestAgentQuotaLimitsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare(), spokeStatus: true, quota: wire.SharedSize{Objects: 10, Bytes: 500}})
		r.createObjects(r.hub, 3)
		settle()
		large := strings.Repeat("x", 300)
		r.hub.edit("n0", set("a", large))
		r.hub.edit("n1", set("a", large))
		settle()
		sum := 0
		for _, name := range r.spoke.names() {
			raw, _ := encode(t, r.spoke.content(name))
			sum += len(raw)
		}
		if n := len(r.spoke.names()); n != 3 || sum > 500 || sum < 300 {
			t.Errorf("%d objects of %d bytes are in the cluster", n, sum)
		}
		r.hub.edit("n0", set("a", "y"))
		r.hub.edit("n1", set("b", "z"))
		settle()
		r.wantSame("n0", spec("a", "y"))
		r.wantSame("n1", spec("a", large, "b", "z"))
	})
}

// What waits is shared as soon as there is room: no timer is waited for, and the hub is
// asked for nothing that it would refuse.
func TestObjectBeyondQuotaIsSharedWhenThereIsRoom(t *testing.T) {
	tests := map[string]struct {
		reason string
		side   wire.SharedSide // of the objects
		room   func(r *rig)
		moved  int
	}{
		"an object of the hub is deleted":     {reason: "it counted", side: wire.SharedSpoke, room: func(r *rig) { r.hub.delete(r.hub.names()[0]) }, moved: 1},
		"an object of the cluster is deleted": {reason: "it counted", side: wire.SharedHub, room: func(r *rig) { r.spoke.delete(r.spoke.names()[0]) }, moved: 1},
		"the quota is raised, to the cluster": {reason: "there is more room", side: wire.SharedHub, room: func(r *rig) { r.up.edit(func(s *wire.Share) { s.Quota = within(5) }) }, moved: 2},
		"the quota is raised, to the hub":     {reason: "there is more room", side: wire.SharedSpoke, room: func(r *rig) { r.up.edit(func(s *wire.Share) { s.Quota = within(5) }) }, moved: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				share := defaultShare()
				share.Quota = within(3)
				r := newRig(t, options{share: share})
				r.createObjects(r.side(tc.side), 7)
				r.start()
				r.connect()
				time.Sleep(time.Minute)
				follower := r.side(oppositeSide(tc.side))
				before := follower.names()
				if len(before) != 3 || !strings.HasSuffix(r.quotaMessage(), " and 1 more") {
					t.Fatalf("%d objects are shared, and of the others is said: %q", len(before), r.quotaMessage())
				}
				written, asked := len(r.written()), len(r.listHubWrites())
				time.Sleep(time.Hour)
				if len(r.written()) != written || len(r.listHubWrites()) != asked {
					t.Errorf("what waits was tried %d and %d times", len(r.written())-written, len(r.listHubWrites())-asked)
				}
				tc.room(r)
				time.Sleep(time.Second)
				added := 0
				for _, name := range follower.names() {
					if !strings.Contains(strings.Join(before, " "), name) {
						added++
					}
				}
				if added != tc.moved {
					t.Errorf("%s: %d of those that waited were shared, want %d", tc.reason, added, tc.moved)
				}
				r.up.edit(func(s *wire.Share) { s.Quota = muchRoom() })
				time.Sleep(time.Second)
				if h, s := r.hub.names(), r.spoke.names(); len(h) != len(s) || r.quotaMessage() != "" {
					t.Errorf("with much room the hub has %v, the cluster %v, and %q", h, s, r.quotaMessage())
				}
			})
		})
	}
}

func TestLoweredQuotaDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObjects(r.hub, 5)
		settle()
		r.up.edit(func(s *wire.Share) { s.Quota = wire.SharedSize{Objects: 1, Bytes: 10} })
		settle()
		r.createObject(r.hub, "late", spec("a", "x"))
		r.createObject(r.spoke, "later", spec("a", "x"))
		r.hub.edit("n0", set("a", "y"))
		r.hub.edit("n1", set("a", "longer"))
		r.spoke.edit("n1", set("b", "merged"))
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"as it is", func() {}},
			{"after the agent's end", func() { r.crash(); r.start(); r.connect() }},
			{"after the hub's restart", r.restartHub},
			{"after a cut", func() { r.disconnect(); time.Sleep(time.Minute); r.connect() }},
			{"after a fresh read", func() { r.spoke.cutWatches(true) }},
		} {
			step.do()
			settle()
			if h, s := len(r.hub.names()), len(r.spoke.names()); h != 6 || s != 6 {
				t.Errorf("%s: %d objects on the hub and %d in the cluster, want 6 on each: %v %v", step.name, h, s, r.hub.names(), r.spoke.names())
			}
			if r.up.lastState().Hold != nil {
				t.Errorf("%s: deletions are held: %+v", step.name, r.up.lastState().Hold)
			}
		}
		r.wantSame("n0", spec("a", "y"))
		r.up.edit(func(s *wire.Share) { s.Quota = muchRoom() })
		settle()
		r.wantSame("n1", spec("a", "longer", "b", "merged"))
		r.wantSame("late", spec("a", "x"))
		r.wantSame("later", spec("a", "x"))
		if decided := r.up.decisions(); len(decided) > 0 {
			t.Errorf("conflicts were told: %v", decided)
		}
	})
}
