// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
			m := Parse(0, []byte(tc.raw))
			got, err := m.Configuration(Target{ObjectID: ObjectID{Name: "a"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s: applied (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.named, m.OmittedFields()); diff != "" {
				t.Errorf("%s: named (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
