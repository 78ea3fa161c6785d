// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/spokelet/spokelet/agent/work/inventory"
)

func TestFormerManagersAreTakenOver(t *testing.T) {
	const data, owner = `{"f:data":{"f:k":{}}}`, `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}}}`
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	update, apply := metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	tests := map[string]struct {
		reason  string
		entry   metav1.ManagedFieldsEntry
		others  []inventory.FieldWriter
		earlier bool
	}{
		"an update of ours":           {reason: "the work had another strategy", entry: entry("work-agent", update, "", data), earlier: true},
		"an apply as another manager": {reason: "the work had another manager", entry: entry("work-agent-old", apply, "", data), earlier: true},
		"an apply of the present one": {reason: "it is what it should be", entry: entry("work-agent", apply, "", data)},
		"references":                  {reason: "they are written by updates, whatever the strategy is", entry: entry("work-agent", update, "", owner)},
		"another work's apply":        {reason: "it writes as that still", entry: entry("work-agent-other", apply, "", data), others: []inventory.FieldWriter{{Manager: "work-agent-other", Operation: apply}}},
		"another work's update":       {reason: "it writes like that still", entry: entry("work-agent", update, "", data), others: []inventory.FieldWriter{{Manager: "work-agent", Operation: update}}},
		"an update, and others apply": {reason: "nobody writes like that any more", entry: entry("work-agent", update, "", data), others: []inventory.FieldWriter{{Manager: "work-agent", Operation: apply}}, earlier: true},
		"somebody else's":             {reason: "that is a conflict", entry: entry("kubectl", update, "", data)},
		"a status":                    {reason: "it is not what a manifest says", entry: entry("work-agent", update, "status", data)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := formerManagers([]metav1.ManagedFieldsEntry{tc.entry}, "work-agent", tc.others)
			want := sets.New[string]()
			if tc.earlier {
				want.Insert(tc.entry.Manager)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
