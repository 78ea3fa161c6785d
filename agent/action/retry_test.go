// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

func TestPersistentErrorEndsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.server.put(settingsPath, settings(nil))
		r.server.refuse = func(_, path string) *metav1.Status {
			if path != settingsPath {
				return nil
			}
			return &metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: "conversion webhook failed"}
		}
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 1))
		time.Sleep(10 * time.Second)
		if p.answered() {
			t.Error("it was not tried for long")
		}
		time.Sleep(time.Minute)
		if refusal := p.result(t).Refusal; refusal == nil || !strings.Contains(refusal.Message, "conversion webhook failed") {
			t.Errorf("%+v, want a refusal with the message", refusal)
		}
	})
}

func TestPersistentWriteErrorEndsRetries(t *testing.T) {
	cases := map[string]struct {
		reason string
		action wire.Action
		method string
	}{
		"update": {"its webhook is broken", action(wire.VerbUpdate, settingsTemplate), http.MethodPatch},
		"delete": {"likewise", deletion(settingsTarget()), http.MethodDelete},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				r.server.put(settingsPath, settings(nil))
				r.server.refuse = func(method, path string) *metav1.Status {
					if method != tc.method || path != settingsPath {
						return nil
					}
					return &metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: "failed calling webhook"}
				}
				p := r.start(t, nil)
				p.send(t, version(t, tc.action, 1))
				time.Sleep(10 * time.Second)
				if p.answered() {
					t.Errorf("%s: it was not tried for long", tc.reason)
				}
				time.Sleep(time.Minute)
				want := wire.Refusal{Cause: wire.CauseUnknown, Message: errUnknown.Error() + ": failed calling webhook"}
				if diff := cmp.Diff(&want, p.result(t).Refusal); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestRetriesAreCountedPerGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.server.put(settingsPath, settings(nil))
		r.server.refuse = func(_, path string) *metav1.Status {
			if path != settingsPath {
				return nil
			}
			return &metav1.Status{Status: metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable}
		}
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 1))
		time.Sleep(time.Hour)
		r.server.with(func() {
			r.server.refuse = refuseOnce("GET", settingsPath, 500, metav1.StatusReasonInternalError)
		})
		p.send(t, version(t, action(wire.VerbUpdate, settingsTemplate), 2))
		time.Sleep(minBackoff)
		synctest.Wait()
		decode(t, p.result(t))
	})
}

func TestNewKindIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		if _, err := r.resources.Resource(wire.Target{Resource: "gadgets"}); err == nil {
			t.Fatal("it is there already")
		}
		time.Sleep(time.Second)
		r.discovery.Resources = append(r.discovery.Resources, &metav1.APIResourceList{
			GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{{Name: "gadgets", SingularName: "gadget", Kind: "Gadget", Namespaced: true}},
		})
		p := r.start(t, nil)
		p.send(t, version(t, action(wire.VerbCreate, `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"g","namespace":"app"}}`), 1))
		time.Sleep(10 * time.Second)
		decode(t, p.result(t))
	})
}

// readBeforeWidgetsMoved has the cluster read while it serves widgets at v1alpha1, and served
// at v1 from then on.
func (r *rig) readBeforeWidgetsMoved(t *testing.T) {
	t.Helper()
	widgets := r.discovery.Resources[2]
	widgets.GroupVersion = "example.com/v1alpha1"
	if _, err := r.resources.Resource(wire.Target{Resource: "widgets"}); err != nil {
		t.Fatal(err)
	}
	widgets.GroupVersion = "example.com/v1"
}

func TestRemovedVersionRefreshesDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.readBeforeWidgetsMoved(t)
		r.server.put(widgetPath, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "app"}})
		r.server.refuse = unservedVersion
		p := r.start(t, nil)
		p.send(t, version(t, deletion(wire.Target{Resource: "widgets", Namespace: "app", Name: "w"}), 1))
		synctest.Wait()
		if result := p.result(t); result.Refusal != nil {
			t.Errorf("%s, want that it is deleted", result.Refusal.Message)
		}
	})
}

// unservedVersion answers as an API server that does not serve v1alpha1.
func unservedVersion(_, path string) *metav1.Status { return unservedAt(path, "v1alpha1") }

// unservedAt answers as an API server that does not serve a version.
func unservedAt(path, version string) *metav1.Status {
	if !strings.Contains(path, version) {
		return nil
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}},
	}
}

func TestCreateNotServedRefreshesDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.readBeforeWidgetsMoved(t)
		r.server.refuse = unservedVersion
		p := r.start(t, nil)
		create := action(wire.VerbCreate, `{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"w","namespace":"app"}}`)
		var messages []string
		for generation := range int64(2) {
			p.send(t, version(t, create, generation))
			synctest.Wait()
			messages = append(messages, p.result(t).Refusal.Message)
		}
		want := []string{"the server could not find the requested resource", `kind "Widget" of "example.com/v1alpha1": the cluster has no such resource; use example.com/v1`}
		if diff := cmp.Diff(want, messages); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
