// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/internal/testing/testscale"
)

func (r *rig) wantError(parts ...string) {
	r.t.Helper()
	text := r.up.lastState().LastError
	if len(parts) == 0 && text != "" {
		r.t.Errorf("last error is %q, want none", text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			r.t.Errorf("last error is %q, want one with %q", text, part)
		}
	}
}

var errDenied = errors.New("not today")

func TestRefusedSpokeWriteIsReportedAndRetried(t *testing.T) {
	refusals := map[string]error{
		"forbidden": apierrors.NewForbidden(widgets.GroupResource(), "o", errDenied),
		"invalid":   apierrors.NewBadRequest(errDenied.Error()),
	}
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSharing(t, options{share: defaultShare()})
				r.createObject(r.hub, "o", spec("a", "1"))
				settle()
				r.spoke.refuseWith(func(verb string, at place) error {
					if verb == "patch" && at.name == "o" {
						return refusal
					}
					return nil
				})
				r.hub.edit("o", set("a", "2"))
				settle()
				r.wantError(`cluster: object "o"`, errDenied.Error())
				before := len(r.written())
				time.Sleep(time.Hour)
				if n := len(r.written()) - before; n > 15 {
					t.Errorf("it was tried %d times in an hour", n)
				}
				r.spoke.refuseWith(nil)
				r.hub.edit("o", set("b", "3")) // the next look is not one of the pauses
				time.Sleep(time.Second)
				r.wantSame("o", spec("a", "2", "b", "3"))
				settle()
				r.wantError()
			})
		})
	}
}

func (s *fakeStore) refuseWith(f func(verb string, at place) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

func (s *fakeStore) admitWith(f func(obj map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit = f
}

func TestRefusedHubWriteIsReportedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObject(r.hub, "o", spec("a", "1"))
		settle()
		r.refuseOnHub(func(string, wire.SharedWrite) string { return "hub: not today" })
		r.spoke.edit("o", set("a", "2"))
		r.createObject(r.spoke, "p", spec("a", "1"))
		settle()
		r.wantError("not today", `object "o"`)
		if n := len(r.listHubWrites()); n > 40 {
			t.Errorf("two writes were asked for %d times in a quarter of an hour", n)
		}
		r.refuseOnHub(nil)
		r.spoke.edit("o", set("b", "3"))
		settle()
		r.wantSame("o", spec("a", "2", "b", "3"))
		r.wantSame("p", spec("a", "1"))
		r.wantError()
	})
}

func (r *rig) refuseOnHub(f func(string, wire.SharedWrite) string) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.up.refusal = f
}

func TestFrequentChangesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObject(r.hub, "o", spec("a", "0", "b", "0"))
		settle()
		before, asked, began := len(r.written()), len(r.listHubWrites()), time.Now()
		pause := time.Duration(testscale.Of(20, 10)) * time.Millisecond
		for i := 0; time.Since(began) < time.Minute; i++ {
			r.hub.edit("o", set("a", time.Duration(i).String()))
			r.spoke.edit("o", set("b", time.Duration(i).String()))
			time.Sleep(pause)
			if time.Since(began) == 50*time.Second {
				r.wantError("changes too often")
			}
		}
		most := ratelimit.Burst + 60*ratelimit.PerSecond + 10
		if n := len(r.written()) - before + len(r.listHubWrites()) - asked; n > most {
			t.Errorf("%d writes were made in a minute, want at most %d", n, most)
		}
		settle()
		r.wantError()
		if diff := cmp.Diff(r.hub.content("o"), r.spoke.content("o")); diff != "" {
			t.Errorf("it is not the same (-hub +cluster):\n%s", diff)
		}
		if d := r.up.lastState().Decided; len(d) > 0 {
			t.Errorf("conflicts %+v", d)
		}
	})
}

func TestDroppedFieldStaysOnTheOtherSide(t *testing.T) {
	prune := func(obj map[string]any) { unstructured.RemoveNestedField(obj, "spec", "unknown") }
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.spoke.admitWith(prune)
		r.createObject(r.hub, "o", spec("a", "1", "unknown", "1"))
		settle()
		r.hub.edit("o", set("unknown", "2"))
		settle()
		r.spoke.edit("o", set("a", "2"))
		settle()
		if diff := cmp.Diff(spec("a", "2", "unknown", "2"), r.hub.content("o")); diff != "" {
			t.Errorf("hub (-want +got):\n%s", diff)
		}
		if n, asked := len(r.written()), len(r.listHubWrites()); n > 2 || asked != 1 {
			t.Errorf("writes are %v and %v", r.written(), r.listHubWrites())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.hub.admitWith(prune)
		r.createObject(r.spoke, "o", spec("a", "1", "unknown", "1"))
		settle()
		r.hub.edit("o", set("a", "2"))
		settle()
		if diff := cmp.Diff(spec("a", "2", "unknown", "1"), r.spoke.content("o")); diff != "" {
			t.Errorf("cluster (-want +got):\n%s", diff)
		}
		if n, asked := len(r.written()), len(r.listHubWrites()); n != 1 || asked != 1 {
			t.Errorf("writes are %v and %v", r.written(), r.listHubWrites())
		}
	})
}

func TestDefaultedFieldIsCopiedOnce(t *testing.T) {
	defaults := func(obj map[string]any) {
		if _, ok, _ := unstructured.NestedString(obj, "spec", "default"); !ok {
			_ = unstructured.SetNestedField(obj, "d", "spec", "default")
		}
	}
	for side, of := range map[string]func(*rig) (adds, other *fakeStore){
		"cluster": func(r *rig) (adds, other *fakeStore) { return r.spoke, r.hub },
		"hub":     func(r *rig) (adds, other *fakeStore) { return r.hub, r.spoke },
	} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSharing(t, options{share: defaultShare()})
				adds, other := of(r)
				adds.admitWith(defaults)
				r.createObject(other, "o", spec("a", "1"))
				settle()
				r.wantSame("o", spec("a", "1", "default", "d"))
				if n, asked := len(r.written()), len(r.listHubWrites()); n+asked != 2 {
					t.Errorf("writes are %v and %v", r.written(), r.listHubWrites())
				}
			})
		})
	}
}

func TestCollisionIsReportedAndNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.disconnect()
		r.createObject(r.hub, "o", spec("a", "1"))
		r.createObject(r.spoke, "o", spec("a", "2"))
		r.connect()
		settle()
		r.wantError("differs in", ".spec.a")
		if n := r.up.lastState().Conflicts; n != 1 {
			t.Errorf("%d conflicts, want 1", n)
		}
		if len(r.written())+len(r.listHubWrites()) > 0 {
			t.Errorf("writes are %v and %v", r.written(), r.listHubWrites())
		}
		r.spoke.edit("o", set("a", "1"))
		settle()
		r.wantError()
		if n := r.up.lastState().Conflicts; n != 0 {
			t.Errorf("%d conflicts, want none", n)
		}
		r.spoke.edit("o", set("a", "3"))
		settle()
		r.wantSame("o", spec("a", "3"))
	})
}

func TestTooLargeObjectIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObject(r.spoke, "o", spec("a", strings.Repeat("x", wire.MaxSharedContent)))
		r.createObject(r.spoke, "p", spec("a", "1"))
		settle()
		r.wantError(`"o" is too large`)
		r.wantSame("p", spec("a", "1"))
		r.spoke.edit("o", set("a", "1"))
		settle()
		r.wantSame("o", spec("a", "1"))
		r.wantError()
	})
}

func TestDeletionWaitsForFinalizers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObject(r.hub, "o", spec("a", "1"))
		settle()
		r.spoke.edit("o", func(obj map[string]any) {
			_ = unstructured.SetNestedSlice(obj, []any{"example.com/f"}, "metadata", "finalizers")
		})
		r.hub.delete("o")
		settle()
		if r.spoke.content("o") == nil {
			t.Fatal("the object is gone before its finalizer is")
		}
		if r.hub.content("o") != nil {
			t.Fatal("the object was made again")
		}
		r.spoke.edit("o", func(obj map[string]any) { unstructured.RemoveNestedField(obj, "metadata", "finalizers") })
		settle()
		r.wantSame("o", sharedobject.Content(nil))
	})
}
