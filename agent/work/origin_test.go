// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/record"
)

func TestIsCreatedByUs(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	by := func(manager string, op metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: subresource}
	}
	apply := by(inventory.FieldManager, metav1.ManagedFieldsOperationApply, "")
	for label, tc := range map[string]struct {
		reason  string
		tracked record.Object
		code    int
		born    time.Time
		fields  []metav1.ManagedFieldsEntry
		vouched bool
		want    bool
	}{
		"created by this apply": {reason: "the API server says so", code: http.StatusCreated, fields: []metav1.ManagedFieldsEntry{apply}, born: noon, want: true},
		"found by this apply":   {reason: "somebody was there before", code: http.StatusOK, fields: []metav1.ManagedFieldsEntry{apply}, born: noon},
		"made for another work": {reason: "whoever of us is the last deletes it", code: http.StatusOK, born: noon, vouched: true, want: true},
		"recorded as made":      {reason: "the anchor knows", tracked: record.Object{UID: "u"}, code: http.StatusOK, want: true},
		"recorded as adopted":   {reason: "the anchor knows", tracked: record.Object{UID: "u", IsAdopted: true, IsUncertain: true}, fields: []metav1.ManagedFieldsEntry{apply}, born: noon},
		"an adopted one is gone and comes back by us": {
			reason: "the new one was not there before", tracked: record.Object{UID: "old", IsAdopted: true}, code: http.StatusCreated, want: true,
		},
		"one of ours is gone and comes back by somebody": {
			reason: "the new one is theirs", tracked: record.Object{UID: "old"}, code: http.StatusOK, fields: []metav1.ManagedFieldsEntry{apply}, born: noon,
		},
		"an answer was lost": {
			reason: "nobody else can have made it", tracked: record.Object{IsUncertain: true}, code: http.StatusOK, born: noon,
			fields: []metav1.ManagedFieldsEntry{apply, by("controller", metav1.ManagedFieldsOperationUpdate, "status")}, want: true,
		},
		"an answer was lost, and it is older than the anchor": {
			reason: "it was there before", tracked: record.Object{IsUncertain: true}, code: http.StatusOK, born: noon.Add(-time.Second), fields: []metav1.ManagedFieldsEntry{apply},
		},
		"an answer was lost, and others wrote it": {
			reason: "it may be theirs", tracked: record.Object{IsUncertain: true}, code: http.StatusOK, born: noon,
			fields: []metav1.ManagedFieldsEntry{apply, by("kubectl", metav1.ManagedFieldsOperationUpdate, "")},
		},
		"an answer was lost, and there is no record of writers": {
			reason: "it may be anybody's", tracked: record.Object{IsUncertain: true}, code: http.StatusOK, born: noon,
		},
	} {
		t.Run(label, func(t *testing.T) {
			known := inventory.New(func(inventory.Scope) func() { return func() {} })
			tc.tracked.Target = manifest.Target{ObjectID: manifest.ObjectID{Resource: "configmaps", Namespace: "n", Name: "o"}, Version: "v1", Kind: "ConfigMap"}
			if tc.vouched {
				known.AddClaim(tc.tracked.Target, "w", "a")
				known.MarkCreated(tc.tracked.ObjectID, "u")
			}
			obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(tc.born), ManagedFields: tc.fields}}
			e := &Engine{inventory: known}
			if got := e.isCreatedByUs(Multicluster(), tc.tracked, "u", newObjectOrigin(obj, tc.code), &record.Anchor{UID: "a", Created: noon}); got != tc.want {
				t.Errorf("made = %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}
