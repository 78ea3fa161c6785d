// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// definitionCases are about kinds and namespaces that come with a work.
func definitionCases() map[string]Case {
	gadget := "{apiVersion: $group/v1, kind: Gadget, metadata: {name: g, namespace: $ns}, spec: {size: 1}}"
	return map[string]Case{
		"a definition and an object of its kind converge in one work": {
			reason: "facts 1.5.6, 4.16: within seconds, without another spec; the object goes before its definition",
			spec:   spec("", gadget, definition("gadgets", "Gadget", "$group")),
			then: func(s *stage) {
				s.undefine(s.text("gadgets.$group"))
				s.shows("$w", `
					work
					+work@1
					0 $group/v1 Gadget gadgets $ns/g
					+manifest@1
					1 apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions -/gadgets.$group
					+manifest@1
				`)
				s.lists("$w", "customresourcedefinitions/gadgets."+s.text("$group"), "gadgets/g")
				s.ends("$w")
				s.absent("CustomResourceDefinition", "gadgets.$group")
			},
		},
		"an object waits for a definition that comes later": {
			reason: "facts 1.5.6, 4.16: another work, or somebody else, brings it; no backoff holds it up",
			spec:   spec("", gadget, cm("a", "1")),
			want: `
				work
				+failed@1
				Available=Unknown ResourcesStatusUnknown @1: 1 of 2 resources have unknown status
				0 $group/v1 Gadget - $ns/g
				Applied=False AppliedManifestFailed @1: Failed to apply manifest: *
				Available=Unknown IncompleteResourceMeta: Resource meta is incomplete
				` + cmMeta(1, "a") + `
				+manifest@1
			`,
			then: func(s *stage) {
				s.define(definition("gadgets", "Gadget", "$group"))
				s.good("$w")
				if _, err := s.own("v1", "gadgets").Get(s.ctx, "g", metav1.GetOptions{}); err != nil {
					s.t.Error(err)
				}
				s.ends("$w")
			},
		},
		"a namespace and what is in it converge in one work": {
			reason: "facts 1.5.6: the namespace first, whatever the order of the manifests",
			spec: spec("deleteOption: {propagationPolicy: SelectivelyOrphan, selectivelyOrphans: {orphaningRules: [{resource: namespaces, name: $ns-new}]}}",
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns-new}}", "{apiVersion: v1, kind: Namespace, metadata: {name: $ns-new}}"),
			want: `
				work
				+work@1
				0 v1 ConfigMap configmaps $ns-new/a
				+manifest@1
				1 v1 Namespace namespaces -/$ns-new
				+manifest@1
			`,
			then: func(s *stage) {
				s.ends("$w")
				s.still("Namespace", "$ns-new", "metadata: {deletionTimestamp: null, ownerReferences: null}")
				s.remove("Namespace", "$ns-new")
			},
		},
		"an object waits for a namespace that comes later": {
			reason: "facts 1.5.6: it fails, and is applied once the namespace is there",
			spec:   spec("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns-late}}"),
			then: func(s *stage) {
				s.untilCondition("Applied", "False")
				s.namespace(s.text("$ns-late"))
				s.good("$w")
				s.ends("$w")
			},
		},
	}
}
