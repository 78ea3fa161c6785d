// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// applied is the strategy ServerSideApply with further fields of its
// configuration.
func applied(config string) string {
	return "updateStrategy: {type: ServerSideApply, serverSideApply: {" + config + "}}"
}

// applyCases are about server-side apply and about the order of kinds.
func applyCases() map[string]Case {
	ssa := configs(option("configmaps", "a", applied("force: false")), option(things, "*", applied("force: false")),
		option("apps/deployments", "*", applied("force: false")))
	conflict := `
		work
		+failed@1
		+all@1
		` + cmMeta(0, "a") + `
		Applied=False AppliedManifestFailed @1: Failed to apply manifest: *conflict*
		+there
		+silent
		` + cmMeta(1, "b") + `
		+manifest@1
	`
	return map[string]Case{
		"server-side apply is done as work-agent, and the owner follows": {
			reason: "facts 1.5.4, 4.1: the default field manager, of the ownerReference too; fields that the manifest no longer has go",
			spec:   spec(ssa, thing("t", "spec: {a: 1, b: 1}"), deployment("d", "minReadySeconds: 3,")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "t", "spec: {theirs: 1}")
				s.update("$w", spec(ssa, thing("t", "spec: {b: 2}"), deployment("d", "")))
				s.good("$w")
				s.still("Thing", "t", "spec: {a: null, b: 2, theirs: 1}")
				s.still("Deployment", "d", "spec: {minReadySeconds: null}")
				s.owned("Thing", "t", "$w")
				s.owned("Deployment", "d", "$w")
				s.onlyManager("Deployment", "d")
				if got := operations(s.get("Deployment", "d"), "work-agent"); !strings.Contains(got, "Apply") {
					s.t.Errorf("operations of work-agent: %q", got)
				}
			},
		},
		"a conflict is reported and never forced": {
			reason: "facts 1.5.4, 4.11: Applied is False; the others go on; force is another generation",
			ready:  func(s *stage) { s.hold("rival", cm("a", "theirs")) },
			spec:   spec(ssa, cm("a", "1"), cm("b", "1")),
			want:   conflict,
			then: func(s *stage) {
				s.later()
				s.still("ConfigMap", "a", "data: {k: theirs}")
				s.update("$w", spec(configs(option("configmaps", "a", applied("force: true"))), cm("a", "1"), cm("b", "1")))
				s.good("$w")
				s.still("ConfigMap", "a", "data: {k: '1'}")
				if got := operations(s.get("ConfigMap", "a"), "rival"); got != "" && fieldsOf(s.get("ConfigMap", "a"), "rival", "f:k") {
					s.t.Error("the rival still has the field")
				}
			},
		},
		"a conflict ends when the field is free": {
			reason: "facts 1.5.4, 4.8: what is wanted is applied as soon as nobody objects",
			ready:  func(s *stage) { s.hold("rival", cm("a", "theirs")) },
			spec:   spec(ssa, cm("a", "1"), cm("b", "1")),
			want:   conflict,
			then: func(s *stage) {
				s.hold("rival", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns}, data: {other: theirs}}`)
				s.good("$w")
				s.still("ConfigMap", "a", "data: {k: '1', other: theirs}")
			},
		},
		"the generation stays when nothing changes": {
			reason: "facts 1.5.4, 4.10: creationTimestamp: null is dropped from every metadata, at any depth",
			spec:   spec(ssa, undated("1")),
			then: func(s *stage) {
				s.good("$w")
				s.has("Thing", "t", "{metadata: {generation: 1}, spec: {template: {metadata: {creationTimestamp: null, labels: {l: x}}}}}")
				s.later()
				s.update("$w", spec(ssa, undated("1"), cm("b", "1")))
				s.good("$w")
				s.still("Thing", "t", "metadata: {generation: 1}")
				s.update("$w", spec(ssa, undated("2"), cm("b", "1")))
				s.good("$w")
				s.still("Thing", "t", "{metadata: {generation: 2}, spec: {size: '2'}}")
			},
		},
	}
}

// togetherCases are about server-side apply beside others, and the order of kinds.
func togetherCases() map[string]Case {
	return map[string]Case{
		"two works with field managers of their own share an object": {
			reason: "facts 1.5.4, 4.11, 4.14: each has its fields, both own the object, and it stays until the last one goes",
			spec: spec(configs(option("configmaps", "a", applied("force: false, fieldManager: work-agent-one"))),
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns}, data: {one: "1"}}`),
			then: func(s *stage) {
				s.create("$w-two", spec(configs(option("configmaps", "a", applied("force: false, fieldManager: work-agent-two"))),
					`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns}, data: {two: "2"}}`))
				s.good("$w")
				s.good("$w-two")
				obj := s.has("ConfigMap", "a", "data: {one: '1', two: '2'}")
				for _, manager := range []string{"work-agent-one", "work-agent-two"} {
					if got := operations(obj, manager); !strings.Contains(got, "Apply") {
						s.t.Errorf("operations of %s: %q", manager, got)
					}
				}
				s.owned("ConfigMap", "a", "$w", "$w-two")
				before := s.get("ConfigMap", "a").GetResourceVersion()
				s.later()
				if after := s.get("ConfigMap", "a").GetResourceVersion(); after != before {
					s.t.Errorf("version %s became %s: the works do not leave each other alone", before, after)
				}
				s.shows("$w", "work\n+work@1\n"+cmMeta(0, "a")+"+manifest@1")
				stop := s.releases()
				s.ends("$w-two")
				s.owned("ConfigMap", "a", "$w")
				s.still("ConfigMap", "a", "data: {one: '1'}")
				s.later()
				stop()
			},
		},
		"a field of a server-side apply is taken back on the event": {
			reason: "facts 4.8: drift of what the work wants, and of nothing else",
			spec:   spec(configs(option("configmaps", "a", applied("force: true"))), cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.owned("ConfigMap", "a", "$w")
				s.patch("ConfigMap", "a", "data: {k: theirs, more: theirs}")
				s.has("ConfigMap", "a", "data: {k: '1', more: theirs}")
				s.patch("ConfigMap", "a", "data: {k: null}")
				s.has("ConfigMap", "a", "data: {k: '1', more: theirs}")
				s.patch("ConfigMap", "a", "metadata: {ownerReferences: null}")
				s.owned("ConfigMap", "a", "$w")
			},
		},
		"kinds are applied in a fixed order and deleted in the reverse": {
			reason: "facts 1.5.6: RBAC, accounts, data, Services, what runs, all else; issue 3: pruning and deletion run in reverse kind order",
			then:   kindsInOrder,
		},
	}
}

// undated is a Thing with a template of which a client wrote every field.
func undated(n string) string {
	return fmt.Sprintf(`{apiVersion: %s/v1, kind: Thing, metadata: {name: t, namespace: $ns, creationTimestamp: null}, spec: {size: %q, template: {
		metadata: {creationTimestamp: null, labels: {l: x}}, spec: {inner: [{metadata: {creationTimestamp: null, name: inner}}]}}}}`, thingGroup, n)
}

// nestedCases apply works by works, where hub and spoke are one.
func nestedCases() map[string]Case {
	inner := `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: inner, namespace: $ns, creationTimestamp: null}, spec: {
		workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, creationTimestamp: null}}]},
		manifestConfigs: [{resourceIdentifier: {resource: configmaps, name: a}, feedbackRules: [{type: JSONPaths, jsonPaths: [{name: a, path: .data}]}]}]}}`
	cases := map[string]Case{}
	for _, by := range []string{"Update", "ServerSideApply"} {
		config := configs(option("work.open-cluster-management.io/manifestworks", "inner", strategy(by)))
		cases["a work in a work keeps its generation by "+by] = Case{
			reason: "facts 4.10: nothing changes when nothing is to be changed, whatever the API server fills in",
			spec:   spec(config, inner),
			then: func(s *stage) {
				s.good("$w")
				s.later()
				s.update("$w", spec(config, inner, cm("more", "1")))
				s.good("$w")
				s.later()
				if got := s.get("ManifestWork", "inner").GetGeneration(); got != 1 {
					s.t.Errorf("generation %d, although nothing changed", got)
				}
			},
		}
	}
	return cases
}

// operations of a field manager on an object.
func operations(obj *unstructured.Unstructured, manager string) string {
	var out []string
	for _, e := range obj.GetManagedFields() {
		if e.Manager == manager {
			out = append(out, string(e.Operation))
		}
	}
	return strings.Join(out, " ")
}

// fieldsOf tells whether a manager has a field, by its key in the managed fields.
func fieldsOf(obj *unstructured.Unstructured, manager, field string) bool {
	for _, e := range obj.GetManagedFields() {
		raw, err := json.Marshal(e.FieldsV1)
		if e.Manager == manager && err == nil && strings.Contains(string(raw), strconv.Quote(field)) {
			return true
		}
	}
	return false
}

// kindsInOrder tells the order of writes by the versions that they made.
func kindsInOrder(s *stage) {
	order := []string{"Role", "ServiceAccount", "ConfigMap", "Service", "Deployment", "Lease"}
	watches := map[string]watch.Interface{}
	for _, kind := range order {
		// No earlier than now: a watch without a version begins with what is there.
		list, err := s.on(kind).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		w, err := s.on(kind).Watch(s.ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(w.Stop)
		watches[kind] = w
	}
	s.create("$w", spec("", "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: o, namespace: $ns}}",
		deployment("o", "replicas: 0,"), `{apiVersion: v1, kind: Service, metadata: {name: o, namespace: $ns}, spec: {ports: [{port: 80}]}}`,
		cm("o", "1"), account("o"), role("o", "", "pods", "get")))
	s.good("$w")
	s.inOrder(watches, order, watch.Added, func(before, after int) bool { return before < after })
	s.ends("$w")
	s.inOrder(watches, order, watch.Deleted, func(before, after int) bool { return before > after })
}

// inOrder waits for an event of each kind's object o, and compares the versions.
func (s *stage) inOrder(watches map[string]watch.Interface, kinds []string, event watch.EventType, right func(before, after int) bool) {
	s.t.Helper()
	before, last := "", 0
	for _, kind := range kinds {
		version := s.versionOf(watches[kind], event)
		if before != "" && !right(last, version) {
			s.t.Errorf("%s: %s at version %d, %s at %d", event, before, last, kind, version)
		}
		before, last = kind, version
	}
}

func (s *stage) versionOf(w watch.Interface, event watch.EventType) int {
	s.t.Helper()
	for e := range w.ResultChan() {
		obj, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type != event || obj.GetName() != "o" {
			continue
		}
		version, err := strconv.Atoi(obj.GetResourceVersion())
		if err != nil {
			s.t.Fatal(err)
		}
		return version
	}
	s.t.Fatalf("no event %s", event)
	return 0
}
