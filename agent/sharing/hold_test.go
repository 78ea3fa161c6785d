// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// newMany is a rig with a number of objects that are the same.
func newMany(t *testing.T, count int) *rig {
	t.Helper()
	r := newSharing(t, options{share: defaultShare()})
	for i := range count {
		r.createObject(r.hub, fmt.Sprintf("o%02d", i), spec("a", "1"))
	}
	settle()
	if n := len(r.spoke.names()); n != count {
		t.Fatalf("the cluster has %d objects, want %d", n, count)
	}
	return r
}

// deleteUnobserved deletes objects of a side while nobody watches it.
func (r *rig) deleteUnobserved(side wire.SharedSide, count int) {
	r.t.Helper()
	r.crash()
	for _, name := range r.side(side).names()[:count] {
		r.side(side).delete(name)
	}
	if side == wire.SharedHub {
		r.up.restart()
	}
	r.start()
	r.connect()
	settle()
}

func (r *rig) wantCounts(hub, spoke int) {
	r.t.Helper()
	if h, s := len(r.hub.names()), len(r.spoke.names()); h != hub || s != spoke {
		r.t.Errorf("the hub has %d objects, the cluster %d; want %d and %d", h, s, hub, spoke)
	}
}

func (r *rig) wantHold(reason string) wire.Hold {
	r.t.Helper()
	hold := r.up.lastState().Hold
	switch {
	case hold == nil && reason == "":
		return wire.Hold{}
	case hold == nil || hold.Reason != reason:
		r.t.Errorf("hold is %+v, want %q", hold, reason)
		return wire.Hold{}
	}
	return *hold
}

func (r *rig) confirm(hold wire.Hold) {
	r.up.edit(func(s *wire.Share) { s.Confirmed = append(s.Confirmed, hold.Token) })
	settle()
}

func TestManyUnobservedDeletionsAreHeld(t *testing.T) {
	for _, side := range []wire.SharedSide{wire.SharedHub, wire.SharedSpoke} {
		t.Run("a tenth is deleted where it is absent on the "+string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMany(t, 20)
				r.deleteUnobserved(side, 2)
				r.wantHold("")
				r.wantCounts(18, 18)
			})
		})
		t.Run("more is held until it is confirmed where it is absent on the "+string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMany(t, 20)
				r.deleteUnobserved(side, 3)
				hold := r.wantHold(syncv1alpha1.ReasonUnproven)
				if h, s := len(r.hub.names()), len(r.spoke.names()); h+s != 37 {
					t.Errorf("the sides have %d and %d objects: deletions have travelled", h, s)
				}
				r.confirm(wire.Hold{Token: "another"})
				r.wantHold(syncv1alpha1.ReasonUnproven)
				r.confirm(hold)
				r.wantHold("")
				r.wantCounts(17, 17)
			})
		})
	}
}

func TestObservedDeletionsAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 20)
		for _, name := range r.hub.names()[:15] {
			r.hub.delete(name)
		}
		settle()
		r.wantHold("")
		r.wantCounts(5, 5)
		for _, name := range r.spoke.names()[:3] {
			r.spoke.delete(name)
		}
		settle()
		r.wantHold("")
		r.wantCounts(2, 2)
	})
}

func TestHoldRatioIgnoresObjectsThatBothSidesLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 22)
		r.deleteUnobserved(wire.SharedHub, 20)
		r.wantHold(syncv1alpha1.ReasonUnproven)
		r.spoke.deleteDefinition()
		settle()
		r.setDefinition(func(map[string]any) {})
		settle()
		hold := r.wantHold(syncv1alpha1.ReasonUnproven)
		if want := "cluster: 2 of 2 objects"; !strings.Contains(hold.Message, want) {
			t.Errorf("message is %q, want %q", hold.Message, want)
		}
		r.wantCounts(2, 0)
	})
}

func TestTokenConfirmsOnlyItsDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 20)
		r.deleteUnobserved(wire.SharedSpoke, 3)
		first := r.wantHold(syncv1alpha1.ReasonUnproven)
		r.deleteUnobserved(wire.SharedSpoke, 1)
		second := r.wantHold(syncv1alpha1.ReasonUnproven)
		if first.Token == second.Token {
			t.Fatalf("token %s stays after another object was deleted", first.Token)
		}
		r.confirm(first)
		r.wantCounts(20, 16)
		r.confirm(second)
		r.wantCounts(16, 16)
	})
}

func TestDeletionsAfterRestoreAreHeld(t *testing.T) {
	for _, side := range []wire.SharedSide{wire.SharedHub, wire.SharedSpoke} {
		t.Run(string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMany(t, 20)
				restore := r.side(side).backup()
				r.createObject(r.side(side), "later", spec("a", "1"))
				settle()
				restore()
				if side == wire.SharedHub {
					r.restartHub()
				}
				settle()
				r.wantHold(syncv1alpha1.ReasonRestored)
				if c := r.side(oppositeSide(side)).content("later"); c == nil {
					t.Error("what a backup lacks was deleted on the other side")
				}
			})
		})
	}
}

func TestDeletionsAfterClusterReplacementAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 20)
		r.up.edit(func(s *wire.Share) { s.HubUID = "hub-2" })
		settle()
		r.wantHold("") // it lacks nothing
		r.disconnect()
		r.hub.delete(r.hub.names()[0])
		r.up.restart()
		r.up.edit(func(s *wire.Share) { s.HubUID = "hub-3" })
		r.connect()
		settle()
		hold := r.wantHold(syncv1alpha1.ReasonReplaced)
		r.wantCounts(19, 20)
		r.confirm(hold)
		r.wantHold("")
		r.wantCounts(19, 19)
	})
}

func TestNamespaceDeletionDoesNotDeleteHubObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 5)
		r.spoke.deleteNamespace()
		time.Sleep(time.Minute)
		if p := r.up.lastState().Problem; p == nil || p.Reason != syncv1alpha1.ReasonNamespaceTerminating {
			t.Errorf("problem is %+v", p)
		}
		r.wantCounts(5, 0)
		r.spoke.recreateNamespace()
		settle()
		if p := r.up.lastState().Problem; p != nil {
			t.Errorf("problem is %+v", p)
		}
		hold := r.wantHold(syncv1alpha1.ReasonUnproven)
		r.wantCounts(5, 0)
		r.confirm(hold)
		r.wantCounts(0, 0)
	})
}

func TestDefinitionDeletionDoesNotDeleteHubObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 5)
		r.spoke.deleteDefinition()
		time.Sleep(time.Minute)
		if p := r.up.lastState().Problem; p == nil || !slices.Contains([]string{syncv1alpha1.ReasonDefinitionMissing, syncv1alpha1.ReasonDefinitionNotReady}, p.Reason) {
			t.Errorf("problem is %+v", p)
		}
		r.wantCounts(5, 0)
		r.setDefinition(func(map[string]any) {})
		settle()
		r.wantHold(syncv1alpha1.ReasonUnproven)
		r.wantCounts(5, 0)
		if r.up.lastState().Problem != nil {
			t.Errorf("problem is %+v", r.up.lastState().Problem)
		}
	})
}
