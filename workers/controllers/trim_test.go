// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"
)

func TestTrimWorkDropsLargeStatus(t *testing.T) {
	condition := func(message int) metav1.Condition {
		return metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Message: strings.Repeat("a", message)}
	}
	cases := map[string]struct {
		conditions []metav1.Condition
		manifests  int
		kept       int // manifests
		reason     string
	}{
		"an honest status":      {conditions: []metav1.Condition{condition(100)}, manifests: 110, kept: 110, reason: "all of it is read"},
		"manifests":             {conditions: []metav1.Condition{condition(100)}, manifests: 100_000, reason: "they may be left out"},
		"conditions":            {conditions: make([]metav1.Condition, 100_000), reason: "there are few"},
		"a condition's message": {conditions: []metav1.Condition{condition(1 << 20)}, manifests: 1, reason: "who reads it cuts it, too"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, 1)}}
			w.Status.Conditions = tc.conditions
			w.Status.ResourceStatus.Manifests = make([]workv1.ManifestCondition, tc.manifests)
			if _, err := trimWork(w); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > maxWorkStatus+4<<10 || w.ManagedFields != nil {
				t.Errorf("%s: %d bytes are kept", tc.reason, len(text))
			}
			if got := len(w.Status.ResourceStatus.Manifests); got != tc.kept || len(w.Status.Conditions) == 0 {
				t.Errorf("%s: %d manifests and %d conditions are kept", tc.reason, got, len(w.Status.Conditions))
			}
		})
	}
}
