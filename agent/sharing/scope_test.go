// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"encoding/json"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

func labelled(c sharedobject.Content, value string) sharedobject.Content {
	out := sharedobject.Content{"metadata": map[string]any{"labels": map[string]any{"l": value}}}
	maps.Copy(out, c)
	return out
}

func setLabel(value string) func(obj map[string]any) {
	return func(obj map[string]any) { _ = unstructured.SetNestedField(obj, value, "metadata", "labels", "l") }
}

func TestUnselectedObjectsAreNotChanged(t *testing.T) {
	for side := range map[wire.SharedSide]bool{wire.SharedHub: true, wire.SharedSpoke: true} {
		t.Run("one that leaves the selection on the "+string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				share := defaultShare()
				share.Selector = "l=yes"
				r := newSharing(t, options{share: share})
				r.createObject(r.hub, "no", spec("a", "1"))
				r.createObject(r.hub, "yes", labelled(spec("a", "1"), "yes"))
				settle()
				r.wantSame("yes", labelled(spec("a", "1"), "yes"))
				if r.spoke.content("no") != nil {
					t.Error("an object was created that is not selected")
				}
				r.side(side).edit("yes", setLabel("no"))
				settle()
				r.side(side).edit("yes", set("a", "2"))
				settle()
				r.wantError()
				if diff := cmp.Diff(labelled(spec("a", "1"), "yes"), r.side(oppositeSide(side)).content("yes")); diff != "" {
					t.Errorf("the other side (-want +got):\n%s", diff)
				}
				r.side(side).delete("yes")
				settle()
				if r.side(oppositeSide(side)).content("yes") == nil {
					t.Error("the deletion of an object that is not shared has travelled")
				}
			})
		})
	}
}

func TestSelectorChangeSharesOtherObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share := defaultShare()
		share.Selector = "l=one"
		r := newSharing(t, options{share: share})
		r.createObject(r.hub, "one", labelled(spec("a", "1"), "one"))
		r.createObject(r.hub, "two", labelled(spec("a", "1"), "two"))
		settle()
		r.up.edit(func(s *wire.Share) { s.Selector = "l=two" })
		settle()
		r.wantSame("two", labelled(spec("a", "1"), "two"))
		r.hub.edit("one", set("a", "2"))
		r.hub.edit("two", set("a", "2"))
		settle()
		r.wantSame("two", labelled(spec("a", "2"), "two"))
		if diff := cmp.Diff(labelled(spec("a", "1"), "one"), r.spoke.content("one")); diff != "" {
			t.Errorf("one that is not selected any more (-want +got):\n%s", diff)
		}
	})
}

func TestShareDeletionKeepsObjectsAndDeletesRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 3)
		r.hub.mu.Lock()
		r.up.sync.Source(cluster, wire.KindShare).Delete(shareName)
		r.hub.mu.Unlock()
		settle()
		r.wantCounts(3, 3)
		if keys := r.process.records.Keys(); len(keys) > 0 {
			t.Errorf("records of %v are left", keys)
		}
		r.hub.edit("o00", set("a", "2"))
		settle()
		if diff := cmp.Diff(spec("a", "1"), r.spoke.content("o00")); diff != "" {
			t.Errorf("the cluster (-want +got):\n%s", diff)
		}
	})
}

func (r *rig) wantProblem(reason string) {
	r.t.Helper()
	p := r.up.lastState().Problem
	switch {
	case p == nil && reason == "":
	case p == nil || p.Reason != reason:
		r.t.Errorf("problem is %+v, want %q", p, reason)
	}
}

// setDefinition has a definition be as edit makes it of the usual one; nil removes it.
func (r *rig) setDefinition(edit func(crd map[string]any)) {
	r.spoke.mu.Lock()
	defer r.spoke.mu.Unlock()
	at := place{resource: definitions(), name: widgetsName}
	if edit == nil {
		r.spoke.removeObject(at)
		return
	}
	crd := widgetDefinition(false)
	edit(crd.Object)
	r.spoke.commit(at, crd)
}

func TestUnusableDefinitionIsReported(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(crd map[string]any)
		want   string
	}{
		"missing": {reason: "there are no objects", want: syncv1alpha1.ReasonDefinitionMissing},
		"not established": {
			reason: "its objects are not served", want: syncv1alpha1.ReasonDefinitionNotReady,
			edit: func(crd map[string]any) { delete(crd, "status") },
		},
		"of another kind": {
			reason: "objects of one are none of the other", want: syncv1alpha1.ReasonDefinitionIncompatible,
			edit: func(crd map[string]any) { _ = unstructured.SetNestedField(crd, "Gadget", "spec", "names", "kind") },
		},
		"not namespaced": {
			reason: "objects have no place", want: syncv1alpha1.ReasonDefinitionIncompatible,
			edit: func(crd map[string]any) { _ = unstructured.SetNestedField(crd, "Cluster", "spec", "scope") },
		},
		"without the version": {
			reason: "fields may mean something else", want: syncv1alpha1.ReasonDefinitionIncompatible,
			edit: func(crd map[string]any) {
				versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
				versions[0].(map[string]any)["name"] = "v2"
				_ = unstructured.SetNestedSlice(crd, versions, "spec", "versions")
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{share: defaultShare()})
				r.setDefinition(c.edit)
				r.createObject(r.hub, "o", spec("a", "1"))
				r.start()
				r.connect()
				settle()
				r.wantProblem(c.want)
				if n := len(r.written()); n > 0 {
					t.Errorf("%s: writes are %v", c.reason, r.written())
				}
				r.setDefinition(func(map[string]any) {})
				settle()
				r.wantProblem("")
				r.wantSame("o", spec("a", "1"))
			})
		})
	}
}

func TestMissingDefinitionIsCreatedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share := defaultShare()
		raw, err := json.Marshal(widgetDefinition(false))
		if err != nil {
			t.Fatal(err)
		}
		share.Definition = raw
		r := newRig(t, options{share: share})
		r.setDefinition(nil)
		r.createObject(r.hub, "o", spec("a", "1"))
		r.start()
		r.connect()
		settle()
		r.wantProblem("")
		r.wantSame("o", spec("a", "1"))
		if diff := cmp.Diff([]string{"patch " + widgetsName, "create o"}, r.written()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestDefinitionChangeIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSharing(t, options{share: defaultShare()})
		r.createObject(r.hub, "o", sharedobject.Content{"spec": map[string]any{"a": "1"}, "status": map[string]any{"x": "1"}})
		settle()
		r.spoke.mu.Lock()
		r.spoke.commit(place{resource: definitions(), name: widgetsName}, widgetDefinition(true))
		r.spoke.mu.Unlock()
		settle()
		r.hub.edit("o", func(obj map[string]any) { obj["status"] = map[string]any{"x": "2"} })
		settle()
		r.wantSame("o", sharedobject.Content{"spec": map[string]any{"a": "1"}, "status": map[string]any{"x": "2"}})
	})
}

func TestMissingRightsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMany(t, 3)
		r.spoke.refuseWith(func(_ string, at place) error {
			if at.resource == widgets {
				return apierrors.NewForbidden(widgets.GroupResource(), at.name, errDenied)
			}
			return nil
		})
		r.spoke.cutWatches(false)
		time.Sleep(time.Minute)
		r.wantProblem(syncv1alpha1.ReasonRightsMissing)
		r.spoke.refuseWith(nil)
		settle()
		r.wantProblem("")
		r.hub.edit("o00", set("a", "2"))
		settle()
		r.wantSame("o00", spec("a", "2"))
	})
}
