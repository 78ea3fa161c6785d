// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestTrimMetadataDropsForeignFields(t *testing.T) {
	tests := map[string]struct {
		reason string
		raw    string
		want   string
		named  []string
	}{
		"owners": {
			reason: "a garbage collector takes an object of unknown owners for one whose owners are gone",
			raw:    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"x","uid":"u"}]}}`,
			want:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, named: []string{"metadata.ownerReferences"},
		},
		"what an API server gives": {
			reason: "nobody misses it",
			raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"1","generation":2,"selfLink":"/x","managedFields":[],
				"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"ownerReferences":[]},"status":{}}`,
			want: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
		},
		"annotations of controllers": {
			reason: "each writes its own anew, without end",
			raw:    `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","annotations":{"deployment.kubernetes.io/revision":"7","mine":"x"}}}`,
			want:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"mine":"x"},"name":"a"}}`,
			named:  []string{"metadata.annotations[deployment.kubernetes.io/revision]"},
		},
		"annotations of others": {
			reason: "they are whoever wrote the manifest's own",
			raw:    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"x","pv.kubernetes":"y"},"name":"a"}}`,
			want:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"x","pv.kubernetes":"y"},"name":"a"}}`,
		},
		"a Secret's text": {
			reason: "it is stored as data, and a key that goes from it has to go",
			raw:    `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":"v"},"data":{"k":"b2xk","l":"eA=="}}`,
			want:   `{"apiVersion":"v1","data":{"k":"dg==","l":"eA=="},"kind":"Secret","metadata":{"name":"a"}}`,
		},
		"a Secret's text that is none": {
			reason: "the API server refuses it",
			raw:    `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":1}}`,
			want:   `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":1}}`,
		},
		"another kind with such a field": {
			reason: "it is that kind's own",
			raw:    `{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":"v"}}`,
			want:   `{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"a"},"stringData":{"k":"v"}}`,
		},
		"the old name of an account": {
			reason: "an API server keeps both names in step, and goes by the other one",
			raw:    `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[],"serviceAccount":"s"}}}}`,
			want:   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[],"serviceAccountName":"s"}}}}`,
		},
		"both names of an account": {
			reason: "as an API server prints them",
			raw:    `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[],"serviceAccount":"s","serviceAccountName":"s"}}`,
			want:   `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[],"serviceAccountName":"s"}}`,
		},
		"a serviceAccount of no pod": {
			reason: "it means something else there",
			raw:    `{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a"},"spec":{"serviceAccount":"s"}}`,
			want:   `{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a"},"spec":{"serviceAccount":"s"}}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := parseManifest(0, []byte(tc.raw))
			got, err := m.configuration(target{objectID: objectID{Name: "a"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s: applied (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.named, m.omittedFields()); diff != "" {
				t.Errorf("%s: named (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFormerManagersAreTakenOver(t *testing.T) {
	const data, owner = `{"f:data":{"f:k":{}}}`, `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}}}`
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	update, apply := metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	tests := map[string]struct {
		reason  string
		entry   metav1.ManagedFieldsEntry
		others  []fieldWriter
		earlier bool
	}{
		"an update of ours":           {reason: "the work had another strategy", entry: entry("work-agent", update, "", data), earlier: true},
		"an apply as another manager": {reason: "the work had another manager", entry: entry("work-agent-old", apply, "", data), earlier: true},
		"an apply of the present one": {reason: "it is what it should be", entry: entry("work-agent", apply, "", data)},
		"references":                  {reason: "they are written by updates, whatever the strategy is", entry: entry("work-agent", update, "", owner)},
		"another work's apply":        {reason: "it writes as that still", entry: entry("work-agent-other", apply, "", data), others: []fieldWriter{{"work-agent-other", apply}}},
		"another work's update":       {reason: "it writes like that still", entry: entry("work-agent", update, "", data), others: []fieldWriter{{"work-agent", update}}},
		"an update, and others apply": {reason: "nobody writes like that any more", entry: entry("work-agent", update, "", data), others: []fieldWriter{{"work-agent", apply}}, earlier: true},
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

func TestWarningNamesFieldsNotApplied(t *testing.T) {
	o := outcome{warning: warningText([]string{"metadata.ownerReferences"}, []string{`unknown field "spec.replica"`})}
	want := `Apply manifest complete; not applied, for they are of another cluster or of Kubernetes itself: metadata.ownerReferences; not taken by the API server: unknown field "spec.replica"`
	if got := o.appliedCondition(1); got.Message != want || got.Status != metav1.ConditionTrue {
		t.Errorf("%+v, want the message %q", got, want)
	}
	if got := (&outcome{}).appliedCondition(1).Message; got != "Apply manifest complete" {
		t.Errorf("nothing was left out, and the message is %q", got)
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1"})
	if err != nil || parseManifest(0, raw).omittedFields() != nil {
		t.Errorf("something is left out of %s", raw)
	}
}
