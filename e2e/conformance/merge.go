// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import "fmt"

// mergeCases are what the strategy Update does with the kinds that it knows.
func mergeCases() map[string]Case {
	secret := func(kind, value string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, type: %s, metadata: {name: s, namespace: $ns}, data: {k: %s}}", kind, value)
	}
	frozen := func(kind, value string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: %s, immutable: true, metadata: {name: f, namespace: $ns}, data: {k: %s}}", kind, value)
	}
	return map[string]Case{
		"data of a ConfigMap and a Secret is replaced whole": {
			reason: "facts 1.5.1: a key that the manifest does not have goes",
			ready: func(s *stage) {
				s.make(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns}, data: {theirs: "1"}}`)
				s.make(`{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: $ns}, data: {theirs: MQ==}}`)
			},
			spec: spec("", cm("a", "1"), secret("Opaque", "MQ==")),
			then: func(s *stage) {
				s.good("$w")
				s.still("ConfigMap", "a", "data: {k: '1', theirs: null}")
				s.still("Secret", "s", "data: {k: MQ==, theirs: null}")
			},
		},
		"a Secret of another type is made anew": {
			reason: "facts 1.5.1: its type is immutable; deleted and created",
			spec:   spec("", secret("Opaque", "MQ==")),
			then: func(s *stage) {
				s.good("$w")
				old := s.get("Secret", "s").GetUID()
				s.update("$w", spec("", secret("example.com/other", "Mg==")))
				s.good("$w")
				s.another("Secret", "s", old)
				s.still("Secret", "s", "{type: example.com/other, data: {k: Mg==}}")
				s.owned("Secret", "s", "$w")
				s.lists("$w", "secrets/s")
			},
		},
		"an immutable Secret is made anew": {
			reason: "facts 1.5.1: an immutable field of a Secret; deleted and created",
			spec:   spec("", frozen("Secret", "MQ==")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", frozen("Secret", "Mg==")))
				s.good("$w")
				s.still("Secret", "f", "data: {k: Mg==}")
			},
		},
		"an immutable field stays as it is, and is reported": {
			reason: "facts 1.3, issue 3 (bad input): the update fails, the object is available, the others go on",
			spec:   spec("", frozen("ConfigMap", "one"), cm("a", "1"), job("completions: 1,")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", frozen("ConfigMap", "two"), cm("a", "2"), job("completions: 2,")))
				s.shows("$w", `
					work
					+failed@2
					+all@2
					`+cmMeta(0, "f")+`
					+there
					+silent
					Applied=False AppliedManifestFailed @2: Failed to apply manifest: *immutable*
					`+cmMeta(1, "a")+`
					+again@2
					2 batch/v1 Job jobs $ns/j
					+there
					+silent
					Applied=False AppliedManifestFailed @2: Failed to apply manifest: *immutable*
				`)
				s.still("ConfigMap", "f", "data: {k: one}")
				s.still("ConfigMap", "a", "data: {k: '2'}")
			},
		},
	}
}

// replaceCases are what it replaces, and what it leaves alone.
func replaceCases() map[string]Case {
	pod := func(image, label string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: $ns, labels: {l: %s}}, spec: {serviceAccountName: sa, automountServiceAccountToken: false,
			schedulerName: example.com/nobody, containers: [{name: main, image: %s}]}}`, label, image)
	}
	return map[string]Case{
		"another roleRef fails, and the binding stays": {
			reason: "facts 1.5.1, 4.9: Applied is False at the present generation, Available True; no delete and create",
			spec:   spec("", role("one", "", "pods", "get"), binding("b", "one", "sa")),
			then: func(s *stage) {
				s.good("$w")
				old := s.get("RoleBinding", "b").GetUID()
				s.update("$w", spec("", role("one", "", "pods", "get"), binding("b", "two", "sa")))
				s.shows("$w", `
					work
					+failed@2
					+all@2
					0 rbac.authorization.k8s.io/v1 Role roles $ns/one
					+again@2
					1 rbac.authorization.k8s.io/v1 RoleBinding rolebindings $ns/b
					+there
					+silent
					Applied=False AppliedManifestFailed @2: Failed to apply manifest: *
				`)
				s.later()
				if obj := s.still("RoleBinding", "b", "roleRef: {name: one}"); obj.GetUID() != old {
					s.t.Error("the binding was made anew")
				}
			},
		},
		"rules and subjects of RBAC objects are replaced": {
			reason: "facts 1.5.1: typed get-merge-update",
			spec:   spec("", role("r", "", "pods", "get"), binding("b", "r", "one")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", role("r", "apps", "deployments", "list"), binding("b", "r", "two")))
				s.good("$w")
				s.still("Role", "r", "rules: [{apiGroups: [apps], resources: [deployments], verbs: [list]}]")
				s.still("RoleBinding", "b", "subjects: [{kind: ServiceAccount, name: two, namespace: $ns}]")
			},
		},
		"of Pods and ServiceAccounts what the API takes is reconciled": {
			reason: "facts 1.5.1: the original leaves all but metadata out, and says Applied; here it is done",
			spec:   spec("", account("sa"), pod("example.com/one", "one")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa, namespace: $ns, labels: {l: two}}, automountServiceAccountToken: false}`, pod("example.com/two", "two")))
				s.good("$w")
				s.still("ServiceAccount", "sa", "{metadata: {labels: {l: two}}, automountServiceAccountToken: false}")
				obj := s.still("Pod", "p", "metadata: {labels: {l: two}}")
				if image := nested(obj, "spec", "containers"); !like("*example.com/two*", fmt.Sprint(image)) {
					s.t.Errorf("containers %v", image)
				}
				s.remove("Pod", "p")
			},
		},
		"a Service keeps the address that it was given": {
			reason: "facts 1.5.1: what the API server allocated is no part of the manifest",
			spec:   spec("", service("port: 80")),
			then: func(s *stage) {
				s.good("$w")
				address := nested(s.get("Service", "s"), "spec", "clusterIP")
				s.update("$w", spec("", service("port: 81")))
				s.good("$w")
				s.still("Service", "s", fmt.Sprintf("spec: {clusterIP: %q}", address))
				if ports := nested(s.get("Service", "s"), "spec", "ports"); !like("*port:81*", fmt.Sprint(ports)) {
					s.t.Errorf("ports %v", ports)
				}
			},
		},
		"a kind without rules of its own is replaced, but for its status": {
			reason: "facts 1.5.1: dynamic update: the spec is the manifest's, the status its owner's",
			spec:   spec("", thing("t", "spec: {a: 1, b: 1}"), deployment("d", "minReadySeconds: 5,")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "t", "status: {theirs: 1}", "status")
				s.update("$w", spec("", thing("t", "spec: {b: 2}"), deployment("d", "")))
				s.good("$w")
				s.still("Thing", "t", "{spec: {a: null, b: 2}, status: {theirs: 1}}")
				s.still("Deployment", "d", "spec: {minReadySeconds: null}")
			},
		},
	}
}

func service(port string) string {
	return "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: $ns}, spec: {ports: [{" + port + "}]}}"
}
