// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareReturnsPaths(t *testing.T) {
	deployment := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: REPLICAS, template: {spec: {containers: [{name: a, image: IMAGE}]}}}}`
	of := func(replicas, image string) string {
		return strings.NewReplacer("REPLICAS", replicas, "IMAGE", image).Replace(deployment)
	}
	tests := map[string]struct {
		reason         string
		required, live string
		want           Differences
	}{
		"none": {
			reason: "what the API server filled in is none", required: of("2", "x"),
			live: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: u}, spec: {replicas: 2, strategy: {type: RollingUpdate},
				template: {spec: {restartPolicy: Always, containers: [{name: a, image: x, imagePullPolicy: Always}]}}}, status: {replicas: 1}}`,
		},
		"fields at any depth": {
			reason: "each is named", required: of("2", "x"), live: of("3", "y"),
			want: Differences{Paths: []string{"spec.replicas", "spec.template.spec.containers[0].image"}, Total: 2},
		},
		"a list of another length": {
			reason: "its elements have no names to go by", required: of("2", "x"), live: strings.Replace(of("2", "x"), "[{", "[{name: b}, {", 1),
			want: Differences{Paths: []string{"spec.template.spec.containers"}, Total: 1},
		},
		"labels and annotations": {
			reason:   "keys with dots and slashes stand in brackets",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {labels: {app.kubernetes.io/name: a, tier: "1"}, annotations: {b: "1"}}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {labels: {tier: "2", other: "3"}, annotations: {b: "1"}}}`,
			want:     Differences{Paths: []string{"metadata.labels[app.kubernetes.io/name]", "metadata.labels.tier"}, Total: 2},
		},
		"keys of a Secret": {
			reason:   "the values are not told, whichever form they have",
			required: `{apiVersion: v1, kind: Secret, stringData: {password: hidden, same: s}}`,
			live:     `{apiVersion: v1, kind: Secret, type: Opaque, data: {password: b3RoZXI=, same: cw==, more: bW9yZQ==}}`,
			want:     Differences{Paths: []string{"data.more", "data.password"}, Total: 2},
		},
		"more than are named": {
			reason:   "they are counted",
			required: `{apiVersion: v1, kind: ConfigMap, data: {a: "1", b: "1", c: "1", d: "1"}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, data: {a: "2", b: "2", c: "2", d: "2"}}`,
			want:     Differences{Paths: []string{"data.a", "data.b", "data.c"}, Total: 4},
		},
		"elements among others": {
			reason:   "controllers add some",
			required: `{apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: a}, {name: b}]}`,
			live:     `{apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: c}, {name: a}]}`,
			want:     Differences{Paths: []string{"imagePullSecrets[1]"}, Total: 1},
		},
		"a path without end": {
			reason:   "its end says more than its beginning",
			required: `{apiVersion: v1, kind: ConfigMap, data: {` + strings.Repeat("k", 2*maxPath) + `: {end: "1"}}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, data: {` + strings.Repeat("k", 2*maxPath) + `: {end: "2"}}}`,
			want:     Differences{Paths: []string{"....end"}, Total: 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Compare(object(t, tc.required), object(t, tc.live), 3)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
