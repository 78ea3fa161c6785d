// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// object reads a manifest as a decoder that keeps numbers does.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

type mergeCase struct {
	reason         string
	required, live string
	verdict        Verdict
	// next is what live becomes; nothing is what live is, without managedFields.
	next string
}

func check(t *testing.T, cases map[string]mergeCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			required, live := object(t, c.required), object(t, c.live)
			before := []*unstructured.Unstructured{required.DeepCopy(), live.DeepCopy()}
			next, verdict, err := Merge(required, live)
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			if verdict != c.verdict {
				t.Errorf("%s: verdict %s, want %s", c.reason, verdict, c.verdict)
			}
			if found, err := Compare(required, live, 8); err != nil || (found.Total == 0) != (c.verdict == Unchanged) {
				t.Errorf("%s: verdict %s, and the differences are %v, %v", c.reason, c.verdict, found, err)
			}
			want := live
			if c.next != "" {
				want = object(t, c.next)
			}
			if diff := cmp.Diff(want.Object, next.Object); diff != "" {
				t.Errorf("%s: next (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(before, []*unstructured.Unstructured{required, live}); diff != "" {
				t.Errorf("an argument was changed:\n%s", diff)
			}
			if _, again, err := Merge(required, next); err != nil || again != Unchanged {
				t.Errorf("a second merge: %s, %v", again, err)
			}
		})
	}
}

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {colour: green}
`

func TestMergeMergesMetadata(t *testing.T) {
	check(t, map[string]mergeCase{
		"what others added stays": {
			reason:   "labels, annotations, owners and finalizers of others are theirs",
			required: settings,
			live: `{apiVersion: v1, kind: ConfigMap, data: {colour: green}, metadata: {name: settings, namespace: shop, uid: u, resourceVersion: "7",
				labels: {a: b}, annotations: {c: d}, finalizers: [hold], ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, uid: x}]}}`,
		},
		"what is required is added": {
			reason: "labels and annotations are merged by key; the rest of the object stays as it is",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, labels: {a: "1", b: "2"}, annotations: {c: "3"}, uid: mine,
				resourceVersion: "1", finalizers: [mine]}, data: {colour: green}}`,
			live: `{apiVersion: v1, kind: ConfigMap, data: {colour: green}, metadata: {name: settings, namespace: shop, uid: u, resourceVersion: "7",
				labels: {a: "0", z: "9"}, managedFields: [{manager: m}]}}`,
			verdict: Update,
			next: `{apiVersion: v1, kind: ConfigMap, data: {colour: green}, metadata: {name: settings, namespace: shop, uid: u, resourceVersion: "7",
				labels: {a: "1", b: "2", z: "9"}, annotations: {c: "3"}}}`,
		},
		"a key that ends in a dash is taken away": {
			reason:   "it is the one way to remove a label",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {labels: {a-: ""}, annotations: {b-: "", c: "1"}}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {labels: {a: "1"}, annotations: {b: "1"}}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {c: "1"}}}`,
		},
		"a key that is not there cannot be taken away": {
			reason:   "nothing changes, so nothing is written",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {labels: {a-: ""}}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {labels: {b: "1"}}}`,
		},
		"an owner is added to those that are there": {
			reason:   "works that share an object are all its owners",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v1, kind: A, name: two, uid: "2"}]}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v1, kind: A, name: one, uid: "1"}]}}`,
			verdict:  Update,
			next: `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v1, kind: A, name: one, uid: "1"},
				{apiVersion: w/v1, kind: A, name: two, uid: "2"}]}}`,
		},
		"an owner that was created anew takes its own place": {
			reason:   "a reference to a UID that is no more would have the object collected",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v2, kind: A, name: one, uid: "2"}]}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v1, kind: A, name: one, uid: "1", blockOwnerDeletion: true}]}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v2, kind: A, name: one, uid: "2", blockOwnerDeletion: true}]}}`,
		},
		"an owner that is there stays as others made it": {
			reason:   "blockOwnerDeletion is not ours to clear",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v1, kind: A, name: one, uid: "1"}]}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {ownerReferences: [{apiVersion: w/v1, kind: A, name: one, uid: "1", blockOwnerDeletion: true}]}}`,
		},
	})
}

func TestMergeReconcilesOnlyMetadataOfNamespace(t *testing.T) {
	cases := map[string]mergeCase{}
	for kind, content := range map[string]string{
		"Namespace": "spec: {finalizers: [x]}", "ServiceAccount": "secrets: [{name: x}]",
	} {
		cases["a "+kind+" of other content"] = mergeCase{
			reason:   "the rest of it is the cluster's",
			required: `{apiVersion: v1, kind: ` + kind + `, metadata: {name: n}, ` + content + `}`,
			live:     `{apiVersion: v1, kind: ` + kind + `, metadata: {name: n}, status: {phase: Active}}`,
		}
		cases["a "+kind+" without a label"] = mergeCase{
			reason:   "a label is written, and no content with it",
			required: `{apiVersion: v1, kind: ` + kind + `, metadata: {name: n, labels: {a: b}}, ` + content + `}`,
			live:     `{apiVersion: v1, kind: ` + kind + `, metadata: {name: n}, status: {phase: Active}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: ` + kind + `, metadata: {name: n, labels: {a: b}}, status: {phase: Active}}`,
		}
	}
	check(t, cases)
}

func TestMergeReplacesDataOfConfigMap(t *testing.T) {
	check(t, map[string]mergeCase{
		"a ConfigMap with another key": {
			reason:   "a key that nobody asked for goes",
			required: settings,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {colour: green, size: big}, binaryData: {x: AAA=}}`,
			verdict:  Update,
			next:     settings,
		},
		"a ConfigMap whose bundle is injected": {
			reason: "who injects the certificates owns that key",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {name: ca, labels: {config.openshift.io/inject-trusted-cabundle: "true"}},
				data: {mine: "1"}}`,
			live: `{apiVersion: v1, kind: ConfigMap, metadata: {name: ca, labels: {config.openshift.io/inject-trusted-cabundle: "true"}},
				data: {mine: "0", ca-bundle.crt: certificates}}`,
			verdict: Update,
			next: `{apiVersion: v1, kind: ConfigMap, metadata: {name: ca, labels: {config.openshift.io/inject-trusted-cabundle: "true"}},
				data: {mine: "1", ca-bundle.crt: certificates}}`,
		},
		"a ConfigMap that states the bundle itself": {
			reason:   "what is stated is required",
			required: `{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {config.openshift.io/inject-trusted-cabundle: "true"}}, data: {ca-bundle.crt: mine}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {config.openshift.io/inject-trusted-cabundle: "true"}}, data: {ca-bundle.crt: theirs}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {config.openshift.io/inject-trusted-cabundle: "true"}}, data: {ca-bundle.crt: mine}}`,
		},
		"a ConfigMap that was made immutable": {
			reason:   "the API server says that it is; here it is an update like any other",
			required: settings,
			live:     `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {colour: red}, immutable: true}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {colour: green}, immutable: true}`,
		},
		"binary data with line breaks": {
			reason:   "the API server stores the bytes",
			required: `{apiVersion: v1, kind: ConfigMap, binaryData: {x: "AA\nA="}}`,
			live:     `{apiVersion: v1, kind: ConfigMap, binaryData: {x: AAA=}}`,
		},
		"empty data": {
			reason:   "none and empty are the same to the API server",
			required: `{apiVersion: v1, kind: ConfigMap, data: {}}`,
			live:     `{apiVersion: v1, kind: ConfigMap}`,
		},
	})
}

func TestMergeSecret(t *testing.T) {
	check(t, map[string]mergeCase{
		"plain text that is there": {
			reason:   "the API server stores stringData as data, and defaults the type",
			required: `{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: hello}}`,
			live:     `{apiVersion: v1, kind: Secret, metadata: {name: s}, type: Opaque, data: {a: aGVsbG8=}}`,
		},
		"a key too many": {
			reason:   "data is replaced whole",
			required: `{apiVersion: v1, kind: Secret, stringData: {a: hello}}`,
			live:     `{apiVersion: v1, kind: Secret, type: Opaque, data: {a: aGVsbG8=, b: AAA=}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: Secret, metadata: {}, type: Opaque, data: {a: aGVsbG8=}}`,
		},
		"another type": {
			reason:   "a Secret's type cannot be changed; what is created has nothing of the old one's identity",
			required: `{apiVersion: v1, kind: Secret, metadata: {name: s}, type: kubernetes.io/tls, data: {tls.crt: AAA=, tls.key: AAA=}}`,
			live: `{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: s, uid: u, resourceVersion: "3", creationTimestamp: "2026-01-01T00:00:00Z",
				labels: {theirs: "1"}}}`,
			verdict: Recreate,
			next:    `{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: s, labels: {theirs: "1"}}, data: {tls.crt: AAA=, tls.key: AAA=}}`,
		},
		"an immutable one with other data": {
			reason:   "the API server refuses every change of it",
			required: `{apiVersion: v1, kind: Secret, metadata: {name: s}, immutable: true, stringData: {a: hello}}`,
			live:     `{apiVersion: v1, kind: Secret, metadata: {name: s, uid: u}, type: Opaque, immutable: true, data: {a: AAA=}}`,
			verdict:  Recreate,
			next:     `{apiVersion: v1, kind: Secret, metadata: {name: s}, type: Opaque, immutable: true, data: {a: aGVsbG8=}}`,
		},
		"an immutable one with another label": {
			reason:   "metadata can be changed",
			required: `{apiVersion: v1, kind: Secret, metadata: {labels: {a: b}}, stringData: {a: hello}}`,
			live:     `{apiVersion: v1, kind: Secret, type: Opaque, immutable: true, data: {a: aGVsbG8=}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: Secret, metadata: {labels: {a: b}}, type: Opaque, immutable: true, data: {a: aGVsbG8=}}`,
		},
		"one that is made immutable": {
			reason:   "it is a change like another",
			required: `{apiVersion: v1, kind: Secret, immutable: true, stringData: {a: hello}}`,
			live:     `{apiVersion: v1, kind: Secret, type: Opaque, data: {a: aGVsbG8=}}`,
			verdict:  Update,
			next:     `{apiVersion: v1, kind: Secret, metadata: {}, immutable: true, type: Opaque, data: {a: aGVsbG8=}}`,
		},
		"a token of a service account": {
			reason:   "a controller fills in its keys, which stay",
			required: `{apiVersion: v1, kind: Secret, metadata: {annotations: {kubernetes.io/service-account.name: a}}, type: kubernetes.io/service-account-token}`,
			live: `{apiVersion: v1, kind: Secret, metadata: {annotations: {kubernetes.io/service-account.name: a, kubernetes.io/service-account.uid: u}},
				type: kubernetes.io/service-account-token, data: {token: AAA=, ca.crt: AAA=}}`,
		},
	})
}

func TestMergeComparesRBACExactly(t *testing.T) {
	const api = `apiVersion: rbac.authorization.k8s.io/v1, `
	check(t, map[string]mergeCase{
		"a Role with one rule too many": {
			reason:   "a right that nobody asked for goes",
			required: `{` + api + `kind: Role, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			live:     `{` + api + `kind: Role, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}, {apiGroups: [""], resources: [secrets], verbs: [get]}]}`,
			verdict:  Update,
			next:     `{` + api + `kind: Role, metadata: {}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
		},
		"a Role that shall have no rules": {
			reason:   "no rules are none, not any",
			required: `{` + api + `kind: Role}`,
			live:     `{` + api + `kind: Role, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			verdict:  Update,
			next:     `{` + api + `kind: Role, metadata: {}}`,
		},
		"a Role stored with no rules": {
			reason:   "the API server writes null for none",
			required: `{` + api + `kind: Role, rules: []}`,
			live:     `{` + api + `kind: Role, rules: null}`,
		},
		"an aggregated ClusterRole": {
			reason:   "its rules are a controller's",
			required: `{` + api + `kind: ClusterRole, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: []}`,
			live:     `{` + api + `kind: ClusterRole, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [{verbs: [get]}]}`,
		},
		"an aggregation too many": {
			reason:   "rights that grow by themselves were not asked for",
			required: `{` + api + `kind: ClusterRole, rules: [{verbs: [get]}]}`,
			live:     `{` + api + `kind: ClusterRole, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [{verbs: [get]}]}`,
			verdict:  Update,
			next:     `{` + api + `kind: ClusterRole, metadata: {}, rules: [{verbs: [get]}]}`,
		},
		"a binding as it is usually written": {
			reason: "the API server fills in the groups",
			required: `{` + api + `kind: RoleBinding, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}, {kind: Group, name: g},
				{kind: ServiceAccount, name: s, namespace: n, apiGroup: ""}]}`,
			live: `{` + api + `kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r},
				subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: u}, {apiGroup: rbac.authorization.k8s.io, kind: Group, name: g},
				{kind: ServiceAccount, name: s, namespace: n}]}`,
		},
		"a binding with a subject too many": {
			reason:   "whoever was added goes",
			required: `{` + api + `kind: ClusterRoleBinding, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: ServiceAccount, name: s, namespace: n}]}`,
			live: `{` + api + `kind: ClusterRoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r},
				subjects: [{kind: ServiceAccount, name: s, namespace: n}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]}`,
			verdict: Update,
			next: `{` + api + `kind: ClusterRoleBinding, metadata: {}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r},
				subjects: [{kind: ServiceAccount, name: s, namespace: n}]}`,
		},
		"a binding to another role": {
			reason:   "the API server refuses it, and that is what is reported",
			required: `{` + api + `kind: RoleBinding, roleRef: {kind: Role, name: other}}`,
			live:     `{` + api + `kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}`,
			verdict:  Update,
			next:     `{` + api + `kind: RoleBinding, metadata: {}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: other}}`,
		},
	})
}

func TestMergeOtherTypedKinds(t *testing.T) {
	cases := map[string]mergeCase{}
	for kind, api := range map[string]string{
		"Service": "v1", "NetworkPolicy": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1",
		"CustomResourceDefinition": "apiextensions.k8s.io/v1", "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
		"ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1", "StorageVersionMigration": "storagemigration.k8s.io/v1beta1",
	} {
		base := `apiVersion: ` + api + `, kind: ` + kind + `, metadata: {name: n}, `
		cases["a "+kind+" with defaults"] = mergeCase{
			reason:   "the API server's defaults are no drift",
			required: `{` + base + `spec: {a: 1}}`,
			live:     `{` + base + `spec: {a: 1, defaulted: true}, status: {s: 1}}`,
		}
		cases["a "+kind+" that differs"] = mergeCase{
			reason:   "the specification is replaced, the status is not",
			required: `{` + base + `spec: {a: 1}, status: {mine: 1}}`,
			live:     `{` + base + `spec: {a: 2, defaulted: true}, status: {s: 1}}`,
			verdict:  Update,
			next:     `{` + base + `spec: {a: 1}, status: {s: 1}}`,
		}
	}
	check(t, cases)
}

func TestMergeRecreatesImmutableObjects(t *testing.T) {
	const class = `apiVersion: storage.k8s.io/v1, kind: StorageClass, `
	check(t, map[string]mergeCase{
		"a driver with another specification": {
			reason:   "most of a CSIDriver is fixed, and what is depends on the version",
			required: `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: n}, spec: {attachRequired: false}}`,
			live:     `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: n, uid: u}, spec: {attachRequired: true, podInfoOnMount: false}}`,
			verdict:  Recreate,
			next:     `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: n}, spec: {attachRequired: false}}`,
		},
		"a class with other parameters": {
			reason:   "they are fixed",
			required: `{` + class + `metadata: {name: n}, provisioner: p}`,
			live:     `{` + class + `metadata: {name: n, uid: u}, provisioner: p, parameters: {a: b}, reclaimPolicy: Delete}`,
			verdict:  Recreate,
			next:     `{` + class + `metadata: {name: n}, provisioner: p, reclaimPolicy: Delete}`,
		},
		"a class of another provisioner": {
			reason:   "it is fixed too",
			required: `{` + class + `metadata: {name: n}, provisioner: q}`,
			live:     `{` + class + `metadata: {name: n, uid: u}, provisioner: p}`,
			verdict:  Recreate,
			next:     `{` + class + `metadata: {name: n}, provisioner: q}`,
		},
		"a class that may grow": {
			reason:   "that can be changed, and the defaults stay",
			required: `{` + class + `metadata: {name: n}, provisioner: p, allowVolumeExpansion: true}`,
			live:     `{` + class + `metadata: {name: n}, provisioner: p, reclaimPolicy: Delete, volumeBindingMode: Immediate}`,
			verdict:  Update,
			next:     `{` + class + `metadata: {name: n}, provisioner: p, reclaimPolicy: Delete, volumeBindingMode: Immediate, allowVolumeExpansion: true}`,
		},
	})
}

func TestMergeKeepsInjectedCertificates(t *testing.T) {
	const hooks = `apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: n}, `
	const definition = `apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: n}, `
	check(t, map[string]mergeCase{
		"of a webhook that changes": {
			reason:   "found by its name, for the order may change",
			required: `{` + hooks + `webhooks: [{name: b, timeoutSeconds: 2, clientConfig: {url: u}}, {name: a, clientConfig: {caBundle: mine}}]}`,
			live:     `{` + hooks + `webhooks: [{name: a, clientConfig: {caBundle: A}}, {name: b, timeoutSeconds: 1, clientConfig: {url: u, caBundle: B}}]}`,
			verdict:  Update,
			next:     `{` + hooks + `webhooks: [{name: b, timeoutSeconds: 2, clientConfig: {url: u, caBundle: B}}, {name: a, clientConfig: {caBundle: mine}}]}`,
		},
		"of a webhook that does not": {
			reason:   "they are no drift",
			required: `{` + hooks + `webhooks: [{name: a, clientConfig: {url: u, caBundle: ""}}]}`,
			live:     `{` + hooks + `webhooks: [{name: a, clientConfig: {url: u, caBundle: A}, failurePolicy: Fail}]}`,
		},
		"of a definition's conversion": {
			reason:   "cert-manager and its like write there",
			required: `{` + definition + `spec: {scope: Cluster, conversion: {strategy: Webhook, webhook: {clientConfig: {url: u}}}}}`,
			live:     `{` + definition + `spec: {scope: Namespaced, conversion: {strategy: Webhook, webhook: {clientConfig: {url: u, caBundle: A}}}}}`,
			verdict:  Update,
			next:     `{` + definition + `spec: {scope: Cluster, conversion: {strategy: Webhook, webhook: {clientConfig: {url: u, caBundle: A}}}}}`,
		},
	})
}

func TestMergeReplacesOtherKinds(t *testing.T) {
	check(t, map[string]mergeCase{
		"a Deployment with defaults": {
			reason: "what the API server, the controller and a decoder made of it is no drift",
			required: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 3, paused: false, selector: {matchLabels: {a: b}},
				template: {metadata: {creationTimestamp: null, labels: {a: b}}, spec: {nodeSelector: {}, volumes: [], hostNetwork: false,
				containers: [{name: c, image: i, env: [{name: E, value: ""}], resources: {limits: {cpu: 0.5, memory: 1024Mi}, requests: {cpu: 1}}}]}}}, status: {}}`,
			live: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, annotations: {deployment.kubernetes.io/revision: "1"}}, spec: {replicas: 3.0,
				revisionHistoryLimit: 10, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Always,
				containers: [{name: c, image: i, imagePullPolicy: Always, env: [{name: E}], resources: {limits: {cpu: 500m, memory: 1Gi}, requests: {cpu: "1"}}}]}}},
				status: {replicas: 3}}`,
		},
		"a Deployment with another number of replicas": {
			reason:   "the content becomes the manifest's, and what others put into metadata and status stays",
			required: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 3}}`,
			live: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: u, resourceVersion: "9", finalizers: [f], managedFields: [{manager: m}]},
				spec: {replicas: 4, revisionHistoryLimit: 10}, status: {replicas: 3}}`,
			verdict: Update,
			next: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, uid: u, resourceVersion: "9", finalizers: [f]},
				spec: {replicas: 3}, status: {replicas: 3}}`,
		},
		"a Deployment without a label": {
			reason:   "where only metadata differs only metadata is written",
			required: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, labels: {a: b}}, spec: {replicas: 3}}`,
			live:     `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 3, revisionHistoryLimit: 10}}`,
			verdict:  Update,
			next:     `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, labels: {a: b}}, spec: {replicas: 3, revisionHistoryLimit: 10}}`,
		},
		"a list that is longer": {
			reason:   "lists have no defaults",
			required: `{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: c}]}}}}`,
			live:     `{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: c}, {name: injected}]}}}}`,
			verdict:  Update,
			next:     `{apiVersion: apps/v1, kind: Deployment, metadata: {}, spec: {template: {spec: {containers: [{name: c}]}}}}`,
		},
		"a pointer that is gone": {
			reason:   "allowPrivilegeEscalation: false is not the same as none",
			required: `{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {securityContext: {allowPrivilegeEscalation: false}}}}}`,
			live:     `{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {securityContext: {}}}}}`,
			verdict:  Update,
			next:     `{apiVersion: apps/v1, kind: Deployment, metadata: {}, spec: {template: {spec: {securityContext: {allowPrivilegeEscalation: false}}}}}`,
		},
		"an amount that is no amount": {
			reason:   "only where the API server takes it for a quantity it is one",
			required: `{apiVersion: apps/v1, kind: Deployment, spec: {env: [{name: E, value: "1"}]}}`,
			live:     `{apiVersion: apps/v1, kind: Deployment, spec: {env: [{name: E, value: "1.0"}]}}`,
			verdict:  Update,
			next:     `{apiVersion: apps/v1, kind: Deployment, metadata: {}, spec: {env: [{name: E, value: "1"}]}}`,
		},
		"a custom resource with an empty field": {
			reason:   "its API server keeps what is empty, so that it went is drift",
			required: `{apiVersion: example.com/v1, kind: Thing, spec: {a: "", b: [], c: {}, d: false}}`,
			live:     `{apiVersion: example.com/v1, kind: Thing, spec: {a: "", b: [], c: {}}}`,
			verdict:  Update,
			next:     `{apiVersion: example.com/v1, kind: Thing, metadata: {}, spec: {a: "", b: [], c: {}, d: false}}`,
		},
		"a custom resource without a specification": {
			reason:   "content may be anywhere",
			required: `{apiVersion: example.com/v1, kind: Thing, data: {a: 1}}`,
			live:     `{apiVersion: example.com/v1, kind: Thing, data: {a: 2}, other: 1, status: {s: 1}}`,
			verdict:  Update,
			next:     `{apiVersion: example.com/v1, kind: Thing, metadata: {}, data: {a: 1}, status: {s: 1}}`,
		},
		"a Job that may run more pods": {
			reason: "the selector and the labels that the API server gave it are fixed, and repeated",
			required: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, template: {metadata: {labels: {mine: "1"}},
				spec: {restartPolicy: Never}}}}`,
			live: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 1, selector: {matchLabels: {controller-uid: u}},
				template: {metadata: {labels: {controller-uid: u, job-name: j, mine: "1", other: x}}, spec: {restartPolicy: Never}}}}`,
			verdict: Update,
			next: `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, selector: {matchLabels: {controller-uid: u}},
				template: {metadata: {labels: {controller-uid: u, job-name: j, mine: "1"}}, spec: {restartPolicy: Never}}}}`,
		},
		"a claim that is bound": {
			reason:   "its volume is fixed, its size is not",
			required: `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {resources: {requests: {storage: 2Gi}}}}`,
			live:     `{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: v, storageClassName: c, volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}}}`,
			verdict:  Update,
			next: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {}, spec: {volumeName: v, storageClassName: c, volumeMode: Filesystem,
				resources: {requests: {storage: 2Gi}}}}`,
		},
		"an autoscaler's target": {
			reason:   "its value is a quantity",
			required: `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {metrics: [{resource: {target: {value: 1000m}}}]}}`,
			live:     `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {metrics: [{resource: {target: {value: "1"}}}]}}`,
		},
	})
}

func TestEqualComparesNumbersByValue(t *testing.T) {
	decoded := map[string]any{"a": json.Number("3"), "b": json.Number("1.50"), "c": json.Number("9007199254740993"), "d": json.Number("1e999")}
	read := map[string]any{"a": int64(3), "b": 1.5, "c": int64(9007199254740993), "d": json.Number("1e999")}
	thing := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "spec": spec}}
	}
	if _, verdict, err := Merge(thing(decoded), thing(read)); verdict != Unchanged || err != nil {
		t.Errorf("the same numbers: %s, %v", verdict, err)
	}
	for name, value := range map[string]any{"a": int64(4), "b": 1.6, "c": int64(9007199254740992), "d": json.Number("2e999")} {
		other := shallowCopy(read)
		other[name] = value
		if _, verdict, _ := Merge(thing(decoded), thing(other)); verdict != Update {
			t.Errorf("%s is %v: %s", name, value, verdict)
		}
	}
}

func TestReplaceRemovesFieldsNotInManifest(t *testing.T) {
	const live = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, managedFields: [{manager: m}]}, spec: {replicas: 3, paused: true}}`
	required := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 3}}`)
	if _, verdict, _ := Merge(required, object(t, live)); verdict != Unchanged {
		t.Fatalf("Merge: %s", verdict)
	}
	next, verdict, err := Replace(required, object(t, live))
	if err != nil || verdict != Update {
		t.Fatalf("Replace: %s, %v", verdict, err)
	}
	if diff := cmp.Diff(required.Object, next.Object); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
	if _, verdict, err := Replace(required, next); err != nil || verdict != Unchanged {
		t.Errorf("a second replacement: %s, %v", verdict, err)
	}
}

func TestNewObjectHasNoServerFields(t *testing.T) {
	required := object(t, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: n, uid: u, resourceVersion: "1", creationTimestamp: null,
		finalizers: [f], labels: {a: b, c-: ""}, annotations: {d-: ""}, ownerReferences: [{apiVersion: v1, kind: K, name: o, uid: x}]}, spec: {a: 1}, status: {s: 1}}`)
	got, err := NewObject(required)
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: n, finalizers: [f], labels: {a: b},
		ownerReferences: [{apiVersion: v1, kind: K, name: o, uid: x}]}, spec: {a: 1}}`)
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMergeRefusesMalformedObjects(t *testing.T) {
	cases := map[string]struct {
		reason, required, live string
		want                   error
	}{
		"labels that are a list":        {"an API server refuses them", `{kind: T, metadata: {labels: []}}`, `{kind: T}`, ErrMalformed},
		"a label that is a number":      {"as YAML makes of 1", `{kind: T, metadata: {labels: {a: 1}}}`, `{kind: T}`, ErrMalformed},
		"metadata that is a text":       {"nothing can be read from it", `{kind: T, metadata: x}`, `{kind: T}`, ErrMalformed},
		"owners that are a map":         {"nothing can be added to it", `{kind: T, metadata: {ownerReferences: {}}}`, `{kind: T}`, ErrMalformed},
		"an owner that is a text":       {"it says nothing", `{kind: T, metadata: {ownerReferences: [x]}}`, `{kind: T}`, ErrMalformed},
		"live labels that are a list":   {"no API server has them", `{kind: T}`, `{kind: T, metadata: {labels: [1]}}`, ErrMalformed},
		"data that is a list":           {"it cannot be compared", `{apiVersion: v1, kind: Secret, data: [1]}`, `{apiVersion: v1, kind: Secret}`, ErrMalformed},
		"plain text that is a number":   {"it cannot be encoded", `{apiVersion: v1, kind: Secret, stringData: {a: 1}}`, `{apiVersion: v1, kind: Secret}`, ErrMalformed},
		"a role reference that is text": {"it refers to nothing", `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, roleRef: x}`, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding}`, ErrMalformed},
		"an object of another kind":     {"its fields mean something else", `{kind: T}`, `{kind: U}`, ErrOtherKind},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, verdict, err := Merge(object(t, c.required), object(t, c.live))
			if !errors.Is(err, c.want) || verdict != Unchanged {
				t.Errorf("%s: %s, %v; want %v", c.reason, verdict, err, c.want)
			}
		})
	}
}
