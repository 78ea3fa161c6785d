// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"strings"
	"testing"
)

func TestMergePod(t *testing.T) {
	const live = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: worker, serviceAccountName: default, activeDeadlineSeconds: 5000,
		tolerations: [{key: mine, operator: Exists}, {key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 300}],
		volumes: [{name: kube-api-access-x}], containers: [{name: c, image: old, imagePullPolicy: Always, resources: {requests: {cpu: 10m}},
		volumeMounts: [{name: kube-api-access-x, mountPath: /var/run/secrets}]}, {name: injected, image: sidecar}]}}`
	manifest := func(spec string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {` + spec + `}}`
	}
	check(t, map[string]mergeCase{
		"what it was created from": {
			reason: "of the rest much was filled in by others", live: live,
			required: manifest(`activeDeadlineSeconds: 5000, tolerations: [{key: mine, operator: Exists}], containers: [{name: c, image: old, resources: {requests: {cpu: "0.01"}}}]`),
		},
		"another image and deadline": {
			reason: "an API server takes these", live: live, verdict: Update,
			required: manifest(`activeDeadlineSeconds: 4000, containers: [{name: c, image: new}]`),
			next:     strings.NewReplacer("5000", "4000", "image: old", "image: new").Replace(live),
		},
		"another toleration": {
			reason: "one can be added, and none taken away", live: live, verdict: Update,
			required: manifest(`tolerations: [{key: mine, operator: Exists}, {key: new, operator: Exists}]`),
			next:     strings.Replace(live, "tolerationSeconds: 300}", "tolerationSeconds: 300}, {key: new, operator: Exists}", 1),
		},
		"another command": {
			reason: "the API server says that it cannot be changed", live: live, verdict: Update,
			required: manifest(`containers: [{name: c, image: old, command: [sleep]}]`),
			next:     strings.Replace(live, "image: old", "image: old, command: [sleep]", 1),
		},
		"a gate that is gone": {
			reason: "a gate is taken away by somebody else, and cannot be put back", live: live,
			required: manifest(`schedulingGates: [{name: quota}]`),
		},
		"no spec": {reason: "only metadata is asked for", live: live, required: `{apiVersion: v1, kind: Pod, metadata: {name: p}}`},
	})
}

func TestMergeServiceAccount(t *testing.T) {
	const live = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, secrets: [{name: token}], imagePullSecrets: [{name: mine}, {name: added}]}`
	check(t, map[string]mergeCase{
		"others' pull secrets": {
			reason: "a controller adds its own", live: live, required: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, imagePullSecrets: [{name: mine}]}`,
		},
		"another pull secret": {
			reason: "it was left out without a word, as by the original", live: live, verdict: Update,
			required: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, imagePullSecrets: [{name: new}]}`,
			next:     `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, secrets: [{name: token}], imagePullSecrets: [{name: new}]}`,
		},
		"no token in pods": {
			reason: "the same", live: live, verdict: Update,
			required: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, automountServiceAccountToken: false}`,
			next:     strings.Replace(live, "secrets: [{name: token}]", "automountServiceAccountToken: false, secrets: [{name: token}]", 1),
		},
	})
}
