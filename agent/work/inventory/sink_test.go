// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
			s := newFixture()
			late := s.target()
			late.Name = "late"
			sink := &Sink{Inventory: s.Inventory, Requeue: s.add, Scope: scopeOf(late)}
			sink.StartSync()
			tc.claim(
				func() { s.AddClaim(late, "w", "anchor") },
				func() {
					sink.HandleEvent(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: late.Namespace, Name: late.Name, UID: "v", ResourceVersion: "11"}}, false)
				})
			sink.FinishSync("20")
			live, known, _ := s.Get(late.ObjectID)
			if known != tc.known || known && live == nil {
				t.Errorf("%s: known %t, live %+v; want known %t", tc.reason, known, live, tc.known)
			}
			if live, known, _ := s.Get(s.id); !known || live != nil {
				t.Errorf("%s: what was there before and is not seen: known %t, live %+v; want gone", tc.reason, known, live)
			}
		})
	}
}
