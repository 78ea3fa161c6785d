// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
)

// While the webhook is not registered whoever writes an object writes who asks for it.
func TestObjectsOfFormerRegistrationAreNotPublished(t *testing.T) {
	w, a := resourceWork("w"), actionWork("a")
	r := newRig(t, w, a)
	r.reconcileObjects(t, w, a)
	asked := func() int {
		return len(r.sync.Source(managed, wire.KindView).Keys()) + len(r.publishedActions(managed))
	}
	if asked() != 2 {
		t.Fatalf("%d are asked, want the view and the action", asked())
	}
	for registration, reason := range map[string]string{
		"":        "the hub's webhook is not registered",
		"another": "it was written while the hub's webhook was not registered as it is now; change its spec, or remove the annotation mcm.ibm.com/user-identity",
	} {
		r.authors.Set(registration)
		if _, ok := r.loadAction(managed, objectKeyOf(a).String()); ok {
			t.Errorf("under %q: the action is sent", registration)
		}
		r.drainQueues(t)
		if asked() != 0 {
			t.Errorf("under %q: %d are asked", registration, asked())
		}
		for _, obj := range []*v1alpha1.Work{w, a} {
			if got := stored(t, r, obj).Status; got.Type != v1alpha1.WorkFailed || !strings.Contains(got.Reason, reason) {
				t.Errorf("under %q: status of %s is %+v, want %q", registration, obj.Name, got, reason)
			}
		}
	}
	r.authors.Set("another")
	r.drainQueues(t)
	for _, obj := range []*v1alpha1.Work{w, a} {
		before := stored(t, r, obj).DeepCopy()
		obj.Annotations = requester.User{User: "bob"}.Annotations(requester.MCM, "another")
		if err := r.api.Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		before.Annotations[requester.MCM.User], before.Annotations[requester.MCM.Groups] = obj.Annotations[requester.MCM.User], obj.Annotations[requester.MCM.Groups]
		if !isRelevantChange(before, obj) {
			t.Error("the same author under another registration is no news")
		}
	}
	r.reconcileObjects(t, w, a)
	if asked() != 2 {
		t.Errorf("bob asks, and %d are asked", asked())
	}
	sent, _ := r.loadAction(managed, objectKeyOf(a).String())
	action, err := wire.DecodeAction(sent.Body)
	if diff := cmp.Diff(wire.Requester{User: "bob"}, action.Requester); diff != "" || err != nil {
		t.Errorf("action: %v (-want +got):\n%s", err, diff)
	}
}
