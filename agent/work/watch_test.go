// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPermanentWatchErrors(t *testing.T) {
	gr := schema.GroupResource{Resource: "x"}
	tests := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"no right":      {reason: "somebody has to give it", err: apierrors.NewForbidden(gr, "", errBoom), want: true},
		"no identity":   {reason: "the same", err: apierrors.NewUnauthorized("who"), want: true},
		"no such watch": {reason: "some kinds have none", err: apierrors.NewMethodNotSupported(gr, "watch"), want: true},
		"no such kind":  {reason: "its definition was removed", err: apierrors.NewNotFound(gr, ""), want: true},
		"busy":          {reason: "it passes", err: apierrors.NewTooManyRequestsError("later")},
		"ended":         {reason: "every watch does"},
		"cut off":       {reason: "it passes", err: errBoom},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isPermanentWatchError(tc.err); got != tc.want {
				t.Errorf("%s: refusal %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// The initial events drop an object that no work claims: they tell nothing of one that is
// claimed before they end. To take it for gone leaves it in the cluster for ever.
func TestObjectClaimedDuringInitialEventsIsKept(t *testing.T) {
	tests := map[string]struct {
		reason string
		claim  func(claim, event func())
		known  bool
	}{
		"claimed after its event": {reason: "the event was dropped", claim: func(claim, event func()) { event(); claim() }},
		"claimed before it":       {reason: "the event tells of it", claim: func(claim, event func()) { claim(); event() }, known: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newInventoryFixture()
			late := s.target()
			late.Name = "late"
			sink := &objectSink{inventory: s.inventory, requeue: s.add, scope: scopeOf(late)}
			sink.StartSync()
			tc.claim(
				func() { s.addClaim(late, "w", "anchor") },
				func() {
					sink.HandleEvent(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: late.Namespace, Name: late.Name, UID: "v", ResourceVersion: "11"}}, false)
				})
			sink.FinishSync("20")
			live, known, _ := s.get(late.objectID)
			if known != tc.known || known && live == nil {
				t.Errorf("%s: known %t, live %+v; want known %t", tc.reason, known, live, tc.known)
			}
			if live, known, _ := s.get(s.id); !known || live != nil {
				t.Errorf("%s: what was there before and is not seen: known %t, live %+v; want gone", tc.reason, known, live)
			}
		})
	}
}
