// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

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
	running, done := func(v string) *ObservedObject { return ownedAt(v, 1, "anchor") }, func(v string) *ObservedObject {
		s := ownedAt(v, 1, "anchor")
		s.HasEnded = true
		return s
	}
	tests := map[string]struct {
		reason string
		events func(*fixture)
		again  bool
	}{
		"seen to end, then gone": {reason: "its time to live is over", events: func(s *fixture) {
			s.handleEvent(s.id, done("11"), false, time.Time{})
			s.handleEvent(s.id, done("12"), true, time.Time{})
		}},
		"its end and its deletion in one": {reason: "the last state is that of the deletion", events: func(s *fixture) { s.handleEvent(s.id, done("12"), true, time.Time{}) }},
		"gone while the watch was cut": {reason: "it had ended before", events: func(s *fixture) {
			s.handleEvent(s.id, done("11"), false, time.Time{})
			s.relist("12")
		}},
		"gone while it ran": {reason: "somebody deleted it", again: true, events: func(s *fixture) { s.handleEvent(s.id, running("12"), true, time.Time{}) }},
		"another one ran": {reason: "the manifest had changed, and the new one was deleted", again: true, events: func(s *fixture) {
			s.handleEvent(s.id, done("11"), true, time.Time{})
			s.BeginWrite(s.id, "w", time.Now())
			next := running("13")
			next.UID = "v"
			s.recordApply(s.id, "w", body, next, DriftByFields)
			gone := *next
			gone.ResourceVersion = "14"
			s.handleEvent(s.id, &gone, true, time.Time{})
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newFixture()
			tc.events(s)
			what, _ := s.NextAction(s.id, "w", body, time.Now())
			if (what == ActionApply) != tc.again {
				t.Errorf("%s: needs %d", tc.reason, what)
			}
			if got := s.HasEnded(s.id); got == tc.again {
				t.Errorf("%s: said to have ended %t", tc.reason, got)
			}
		})
	}
}

func TestAnchorIsUpdatedWhenObjectEnds(t *testing.T) {
	s := newFixture()
	done := ownedAt("11", 1, "anchor")
	done.HasEnded = true
	s.handleEvent(s.id, done, false, time.Time{})
	if !slices.Contains(s.requeued, "w") {
		t.Error("the work does not look at what its anchor says")
	}
	s.requeued = nil
	again := *done
	again.ResourceVersion = "12"
	s.handleEvent(s.id, &again, false, time.Time{})
	if len(s.requeued) > 0 {
		t.Errorf("repairs %v at an event that says the same", s.requeued)
	}
}
