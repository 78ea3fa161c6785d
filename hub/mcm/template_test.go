// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/cached"
)

// bulky is a template that the cache does not keep.
var bulky = `{"apiVersion":"v1","data":{"a":"` + strings.Repeat("x", 64<<10) + `"},"kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"}}`

func TestUncachedTemplateIsReadAndPublished(t *testing.T) {
	a := actionWork("a", func(w *v1alpha1.Work) { w.Spec.KubeWork.ObjectTemplate.Raw = []byte(bulky) })
	h := releaseWork("h", func(w *v1alpha1.Work) { w.Spec.HelmWork.Values = []byte(strings.Repeat("a: b\n", 4<<10)) })
	r := newRig(t, a, h)
	r.reconcileObjects(t, a, h)
	sent := func(w *v1alpha1.Work) wire.Action {
		t.Helper()
		loaded, ok := r.loadAction(managed, objectKeyOf(w).String())
		var action wire.Action
		if err := json.Unmarshal(loaded.Body, &action); !ok || err != nil {
			t.Fatalf("sent: %t, %v", ok, err)
		}
		if ref, ok := r.sync.Source(managed, wire.KindAction).Ref(objectKeyOf(w).String()); !ok || ref.Generation != 1 {
			t.Errorf("published: %t, generation %d", ok, ref.Generation)
		}
		return action
	}
	if got := sent(a); string(got.Template) != bulky || got.Requester.User != "alice" {
		t.Errorf("sent for %q: %.200s", got.Requester.User, got.Template)
	}
	if got := sent(h); !bytes.Equal(got.Release.Values, h.Spec.HelmWork.Values) {
		t.Errorf("sent values %.200s", got.Release.Values)
	}
	if len(r.templateSlots) > 0 {
		t.Errorf("%d templates are held", len(r.templateSlots))
	}
}

// What is deleted is named by the template, which is not read for that.
func TestDeletionNeedsNoTemplate(t *testing.T) {
	a := actionWork("a", func(w *v1alpha1.Work) {
		w.Spec.ActionType, w.Spec.KubeWork.ObjectTemplate.Raw = v1alpha1.DeleteActionType, []byte(bulky)
	})
	r := newRig(t, a)
	r.cfg.Live = nil // would panic
	r.reconcileObjects(t, a)
	loaded, ok := r.loadAction(managed, objectKeyOf(a).String())
	var action wire.Action
	if err := json.Unmarshal(loaded.Body, &action); !ok || err != nil {
		t.Fatalf("sent: %t, %v", ok, err)
	}
	if want := (wire.Target{Kind: "ConfigMap", Namespace: "ns", Name: "a"}); action.Target != want {
		t.Errorf("it deletes %+v, want %+v", action.Target, want)
	}
}

func TestTemplatePlaceholderCannotBeForged(t *testing.T) {
	a, lie := actionWork("a"), actionWork("a")
	a.Spec.KubeWork.ObjectTemplate.Raw = []byte(bulky)
	StripTemplates(a.Spec.KubeWork, nil)
	lie.Spec.KubeWork.ObjectTemplate.Raw = append([]byte(nil), a.Spec.KubeWork.ObjectTemplate.Raw...)
	StripTemplates(lie.Spec.KubeWork, nil)
	if bytes.Equal(a.Spec.KubeWork.ObjectTemplate.Raw, lie.Spec.KubeWork.ObjectTemplate.Raw) {
		t.Error("a template that says that it stands for another passes for it")
	}
	if n := TemplateSize(a.Spec.KubeWork, nil); n != len(bulky) {
		t.Errorf("it has %d bytes, want %d", n, len(bulky))
	}
	if n := TemplateSize(lie.Spec.KubeWork, nil); n > 1<<10 {
		t.Errorf("the lie counts %d bytes", n)
	}
}

func TestSmallTemplateIsCached(t *testing.T) {
	a, h := actionWork("a"), releaseWork("h")
	StripTemplates(a.Spec.KubeWork, nil)
	StripTemplates(nil, h.Spec.HelmWork)
	if got := string(a.Spec.KubeWork.ObjectTemplate.Raw); got != configMap || TemplateSize(a.Spec.KubeWork, h.Spec.HelmWork) != 0 {
		t.Errorf("the cache keeps %s", got)
	}
}

func TestOversizedSpecIsReported(t *testing.T) {
	w := resourceWork("w", func(w *v1alpha1.Work) { w.Spec.Scope.FieldSelector = strings.Repeat("x", cached.MaxKept) })
	r := newRig(t, w)
	r.reconcileObjects(t, w)
	if got := stored(t, r, w).Status; got.Type != v1alpha1.WorkFailed || !strings.Contains(got.Reason, "of a spec of more than 8192 bytes beside its template") {
		t.Errorf("%s, %s", got.Type, got.Reason)
	}
}

// failingReader is an API server that answers nothing.
type failingReader struct{ client.Reader }

func (failingReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("boom")
}

func TestActionWithUnreadableTemplateIsRetried(t *testing.T) {
	a := actionWork("a", func(w *v1alpha1.Work) { w.Spec.KubeWork.ObjectTemplate.Raw = []byte(bulky) })
	r := newRig(t, a)
	r.reconcileObjects(t, a)
	r.cfg.Live = failingReader{}
	if loaded, ok := r.loadAction(managed, objectKeyOf(a).String()); ok {
		t.Fatalf("sent %.200s", loaded.Body)
	}
	r.cfg.Live = r.api
	r.reconcileObjects(t, a)
	if len(r.unsent) > 0 {
		t.Error("it is not published anew, and is never sent")
	}
	if _, ok := r.loadAction(managed, objectKeyOf(a).String()); !ok {
		t.Error("it is not sent when the API server is back")
	}
}
