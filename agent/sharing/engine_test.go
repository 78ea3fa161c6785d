// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/sharedobject"
)

// spec is a content with a spec of strings.
func spec(pairs ...string) sharedobject.Content {
	values := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return sharedobject.Content{"spec": values}
}

// wantSame fails unless both sides have a content, nil for none.
func (r *rig) wantSame(name string, want sharedobject.Content) {
	r.t.Helper()
	for side, store := range map[string]*fakeStore{"hub": r.hub, "cluster": r.spoke} {
		if diff := cmp.Diff(want, store.content(name)); diff != "" {
			r.t.Errorf("%s has %s (-want +got):\n%s", side, name, diff)
		}
	}
}

func (r *rig) createObject(of *fakeStore, name string, c sharedobject.Content) {
	r.t.Helper()
	if err := of.make(name, c); err != nil {
		r.t.Fatal(err)
	}
}

func set(key, value string) func(map[string]any) {
	return func(obj map[string]any) { obj["spec"].(map[string]any)[key] = value }
}

func TestEngineKeepsBothSidesEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObject(r.hub, "h", spec("a", "1"))
		r.createObject(r.spoke, "s", spec("b", "1"))
		settle()
		r.wantSame("h", spec("a", "1"))
		r.wantSame("s", spec("b", "1"))
		r.hub.edit("s", set("a", "2"))
		r.spoke.edit("h", set("b", "2"))
		settle()
		r.wantSame("h", spec("a", "1", "b", "2"))
		r.wantSame("s", spec("a", "2", "b", "1"))
		r.hub.delete("s")
		r.spoke.delete("h")
		settle()
		r.wantSame("h", nil)
		r.wantSame("s", nil)
		if diff := cmp.Diff([]string{"create h", "patch s", "delete s"}, r.written()); diff != "" {
			t.Errorf("writes in the cluster (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Object s", "Object h", "Deletion h"}, r.listHubWrites()); diff != "" {
			t.Errorf("writes of the hub (-want +got):\n%s", diff)
		}
		if state := r.up.lastState(); state.LastError != "" || state.Hold != nil || state.Problem != nil || len(state.Decided) > 0 {
			t.Errorf("state is %+v", state)
		}
	})
}

func TestChangesWhileHubIsAwayAreMergedWithoutConflict(t *testing.T) {
	for name, restart := range map[string]func(r *rig){
		"another hub": func(r *rig) { r.up.restart() },
		"another hub and another agent": func(r *rig) {
			r.crash()
			r.up.restart()
			r.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSharing(t, options{share: defaultShare()})
				r.createObject(r.hub, "o", spec("a", "1", "b", "1"))
				settle()
				r.disconnect()
				r.spoke.edit("o", set("b", "2"))
				settle() // the hub that is gone is asked for it
				r.hub.edit("o", set("a", "2"))
				restart(r)
				r.connect()
				settle()
				r.wantSame("o", spec("a", "2", "b", "2"))
				if d := r.up.lastState().Decided; len(d) > 0 {
					t.Errorf("conflicts %+v", d)
				}
			})
		})
	}
}
