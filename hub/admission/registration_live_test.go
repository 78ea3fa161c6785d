// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// While the webhook is not registered, as after somebody deleted it in an outage, whoever
// writes an object writes its author, and every UID that there has been is known.
func TestLiveObjectStoredWithoutWebhookHasNoRequester(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	before := r.registered.UID()
	recorded := r.objects()
	for _, obj := range recorded {
		if err := r.clients[alice].Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.clients[admin].Delete(t.Context(), r.registration.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	passes := func() bool {
		obj := r.work(r.namespace)
		err := r.clients[bob].Create(t.Context(), obj, client.DryRunAll)
		return err == nil && maps.Equal(obj.GetAnnotations(), forged(requester.MCM))
	}
	livetest.Eventually(t, "the webhook is no longer asked", passes)
	r.registered.Set("")
	written := r.objects()
	for _, obj := range written {
		obj.SetAnnotations(requester.User{User: "admin", Groups: []string{"system:masters"}}.Annotations(keysOf(obj), before))
		if err := r.clients[bob].Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	r.register()
	livetest.Eventually(t, "the webhook is asked again", func() bool { return !passes() })

	for _, obj := range append(recorded, written...) {
		r.checkHealing(obj)
	}
}

// checkHealing checks that an object is nobody's, until bob has it be his.
func (r *recording) checkHealing(obj *unstructured.Unstructured) {
	r.t.Helper()
	keys := keysOf(obj)
	nobodys := func(reason string) {
		r.t.Helper()
		if by, err := requester.FromObject(obj, keys, r.registered.UID()); !errors.Is(err, requester.ErrUnknown) {
			r.t.Errorf("%s: %s is asked by %v: %v", reason, obj.GetKind(), by, err)
		}
	}
	nobodys("before anybody changes it")
	if err := r.patch(bob, obj, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		r.t.Error(err)
	}
	nobodys("labelled")
	generation := obj.GetGeneration()
	if err := r.patch(bob, obj, `{"metadata":{"annotations":{"`+keys.User+`":null}}}`); err != nil {
		r.t.Error(err)
	}
	r.checkAuthor("without its annotation", obj, keys, bob)
	if obj.GetGeneration() != generation {
		r.t.Errorf("%s asks anew: an action would be done again", obj.GetKind())
	}
	if err := r.patch(alice, obj, `{"metadata":{"annotations":{"`+requester.AnnotationRegistration+`":"another"}}}`); err != nil {
		r.t.Error(err)
	}
	r.checkAuthor("made nobody's", obj, keys, bob)
}

// Of what is recorded while the hub does not know its registration nobody could tell when.
func TestLiveWebhookFailsWithoutRegistration(t *testing.T) {
	t.Parallel()
	r := newRecording(t)
	obj := r.work(r.namespace)
	if err := r.clients[alice].Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	r.registered.Set("")
	if err := r.clients[alice].Create(t.Context(), r.named(obj)); !apierrors.IsInternalError(err) {
		t.Errorf("another: got %v, want the webhook's failure", err)
	}
	if err := r.patch(alice, obj.DeepCopy(), changeOf(obj)); !apierrors.IsInternalError(err) {
		t.Errorf("another spec: got %v, want the webhook's failure", err)
	}
	if err := r.patch(alice, obj, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("what asks nothing: %v", err)
	}
}
