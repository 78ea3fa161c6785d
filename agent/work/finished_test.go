// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestHasEndedKnowsFinishedKinds(t *testing.T) {
	tests := map[string]struct {
		reason string
		object string
		want   bool
	}{
		"a Job that is complete": {
			reason: "its time to live ends it", want: true,
			object: `{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 0}, status: {conditions: [{type: Complete, status: "True"}]}}`,
		},
		"a Job that failed": {
			reason: "that is an end, too", want: true,
			object: `{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 9}, status: {conditions: [{type: Failed, status: "True"}]}}`,
		},
		"a Job that runs": {
			reason: "whoever deletes it now stops it",
			object: `{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 0}, status: {conditions: [{type: Complete, status: "False"}, {type: Suspended, status: "True"}]}}`,
		},
		"a Job without a time to live": {
			reason: "somebody deleted it",
			object: `{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Complete, status: "True"}]}}`,
		},
		"a pod that succeeded":            {reason: "pods are collected", object: `{apiVersion: v1, kind: Pod, status: {phase: Succeeded}}`, want: true},
		"a pod that failed for good":      {reason: "it does not run again", object: `{apiVersion: v1, kind: Pod, spec: {restartPolicy: Never}, status: {phase: Failed}}`, want: true},
		"a pod that was evicted":          {reason: "it was to run for ever", object: `{apiVersion: v1, kind: Pod, spec: {restartPolicy: Always}, status: {phase: Failed}}`},
		"a pod that runs":                 {reason: "it is not done", object: `{apiVersion: v1, kind: Pod, status: {phase: Running}}`},
		"a certificate that was issued":   {reason: "requests are collected after an hour", object: `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, status: {certificate: eA==}}`, want: true},
		"a certificate that was denied":   {reason: "the same", object: `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, status: {conditions: [{type: Denied, status: "True"}]}}`, want: true},
		"a certificate that is awaited":   {reason: "it is not done", object: `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest}`},
		"another kind of the same status": {reason: "nobody collects it", object: `{apiVersion: example.com/v1, kind: Job, spec: {ttlSecondsAfterFinished: 0}, status: {conditions: [{type: Complete, status: "True"}]}}`},
		"conditions that are none":        {reason: "it has not the shape of its kind", object: `{apiVersion: batch/v1, kind: Job, spec: {ttlSecondsAfterFinished: 0}, status: {conditions: [7]}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &u.Object); err != nil {
				t.Fatal(err)
			}
			if got := hasEnded(u); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}

func TestEndedObjectIsNotRecreated(t *testing.T) {
	running, done := func(v string) *observedObject { return ownedAt(v, 1, "anchor") }, func(v string) *observedObject {
		s := ownedAt(v, 1, "anchor")
		s.hasEnded = true
		return s
	}
	tests := map[string]struct {
		reason string
		events func(*inventoryFixture)
		again  bool
	}{
		"seen to end, then gone": {reason: "its time to live is over", events: func(s *inventoryFixture) {
			s.handleEvent(s.id, done("11"), false, time.Time{})
			s.handleEvent(s.id, done("12"), true, time.Time{})
		}},
		"its end and its deletion in one": {reason: "the last state is that of the deletion", events: func(s *inventoryFixture) { s.handleEvent(s.id, done("12"), true, time.Time{}) }},
		"gone while the watch was cut": {reason: "it had ended before", events: func(s *inventoryFixture) {
			s.handleEvent(s.id, done("11"), false, time.Time{})
			s.relist("12")
		}},
		"gone while it ran": {reason: "somebody deleted it", again: true, events: func(s *inventoryFixture) { s.handleEvent(s.id, running("12"), true, time.Time{}) }},
		"another one ran": {reason: "the manifest had changed, and the new one was deleted", again: true, events: func(s *inventoryFixture) {
			s.handleEvent(s.id, done("11"), true, time.Time{})
			s.beginWrite(s.id, "w", time.Now())
			next := running("13")
			next.uid = "v"
			s.recordApply(s.id, "w", body, next, driftByFields)
			gone := *next
			gone.resourceVersion = "14"
			s.handleEvent(s.id, &gone, true, time.Time{})
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newInventoryFixture()
			tc.events(s)
			what, _ := s.nextAction(s.id, "w", body, time.Now())
			if (what == actionApply) != tc.again {
				t.Errorf("%s: needs %d", tc.reason, what)
			}
			if got := s.hasEnded(s.id); got == tc.again {
				t.Errorf("%s: said to have ended %t", tc.reason, got)
			}
		})
	}
}

func TestEndedObjectIsNotRecreatedAfterRestart(t *testing.T) {
	e, w, at := anchored(t, "A")
	e.attachAnchor(w, w.anchor)
	key := w.key.String()
	e.inventory.beginWrite(at.objectID, key, time.Now())
	s := ownedAt("10", 1, w.anchor.uid)
	s.hasEnded = true
	e.requeue(e.inventory.recordApply(at.objectID, key, body, s, driftByFields))
	said := e.supersededObjects(w)
	if len(said) != 1 {
		t.Fatalf("its anchor says %v", said)
	}
	next, w, at := anchored(t, "A")
	w.anchor.superseded = said
	next.attachAnchor(w, w.anchor)
	scope := scopeOf(at)
	next.inventory.beginResync(scope)
	next.requeue(next.inventory.endResync(scope, nil, "20"))
	if what, _ := next.inventory.nextAction(at.objectID, key, body, time.Now()); what != actionNone {
		t.Errorf("of the same manifest it needs %d", what)
	}
	if !next.inventory.hasEnded(at.objectID) {
		t.Error("its status does not say that it has ended")
	}
	if what, _ := next.inventory.nextAction(at.objectID, key, [32]byte{2}, time.Now()); what != actionApply {
		t.Errorf("of another manifest it needs %d", what)
	}
}

func TestAnchorIsUpdatedWhenObjectEnds(t *testing.T) {
	s := newInventoryFixture()
	done := ownedAt("11", 1, "anchor")
	done.hasEnded = true
	s.handleEvent(s.id, done, false, time.Time{})
	if !slices.Contains(s.requeued, "w") {
		t.Error("the work does not look at what its anchor says")
	}
	s.requeued = nil
	again := *done
	again.resourceVersion = "12"
	s.handleEvent(s.id, &again, false, time.Time{})
	if len(s.requeued) > 0 {
		t.Errorf("repairs %v at an event that says the same", s.requeued)
	}
}
