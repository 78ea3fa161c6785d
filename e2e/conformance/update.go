// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// updateCases are about the default strategy and about ownership: what is written,
// by whom, and what of others stays.
func updateCases() map[string]Case {
	return map[string]Case{
		"what is written is written by work-agent and owned by the anchor": {
			reason: "facts 1.5.7, 4.1: one field manager from the first write on; an ownerReference that is no controller",
			spec:   spec("", cm("a", "1"), deployment("d", ""), thing("t", "spec: {size: 1}"), account("sa")),
			then: func(s *stage) {
				s.good("$w")
				for kind, name := range map[string]string{"ConfigMap": "a", "Deployment": "d", "Thing": "t", "ServiceAccount": "sa"} {
					s.owned(kind, name, "$w")
					s.onlyManager(kind, name)
				}
				s.update("$w", spec("", cm("a", "2"), deployment("d", "minReadySeconds: 3,"), thing("t", "spec: {size: 2}"), account("sa")))
				s.good("$w")
				s.still("ConfigMap", "a", "data: {k: '2'}")
				s.still("Deployment", "d", "spec: {minReadySeconds: 3}")
				s.still("Thing", "t", "spec: {size: 2}")
				for kind, name := range map[string]string{"ConfigMap": "a", "Deployment": "d", "Thing": "t"} {
					s.onlyManager(kind, name)
				}
			},
		},
		"a uid in a manifest is dropped": {
			reason: "facts 1.5.7, 4.21: manifest UIDs are ignored, on creation and on update",
			spec: spec("", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns, uid: 11111111-2222-3333-4444-555555555555}, data: {k: "1"}}`,
				`{apiVersion: `+thingGroup+`/v1, kind: Thing, metadata: {name: t, namespace: $ns, uid: 11111111-2222-3333-4444-555555555555}, spec: {size: 1}}`),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns, uid: 11111111-2222-3333-4444-666666666666}, data: {k: "2"}}`,
					`{apiVersion: `+thingGroup+`/v1, kind: Thing, metadata: {name: t, namespace: $ns, uid: 11111111-2222-3333-4444-666666666666}, spec: {size: 2}}`))
				s.good("$w")
				s.still("ConfigMap", "a", "data: {k: '2'}")
				s.still("Thing", "t", "spec: {size: 2}")
			},
		},
		"an object that is there is taken over, with what others added to its metadata": {
			reason: "facts 1.5.1, 4.21: foreign labels, annotations, finalizers and ownerReferences are kept on update",
			ready: func(s *stage) {
				other := s.make(cm("other", "1"))
				for _, kind := range []string{"ConfigMap", "Thing"} {
					s.make(theirs(kind, string(other.GetUID())))
				}
			},
			spec: spec("", labelled("ConfigMap", "mine", "data: {k: '1'}"), labelled("Thing", "mine", "spec: {k: '1'}")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", labelled("ConfigMap", "yours", "data: {k: '2'}"), labelled("Thing", "yours", "spec: {k: '2'}")))
				s.good("$w")
				for _, kind := range []string{"ConfigMap", "Thing"} {
					obj := s.still(kind, "shared", `metadata: {finalizers: [example.com/theirs],
						labels: {theirs: label, ours: yours}, annotations: {theirs: note, ours: yours}}`)
					if got := len(obj.GetOwnerReferences()); got != 2 {
						s.t.Errorf("%s: %d owners, want theirs and ours", kind, got)
					}
					s.lift(kind, "shared")
				}
			},
		},
		"labels that a manifest no longer has stay": {
			reason: "facts 1.5.1: labels and annotations are merged, never removed",
			spec:   spec("", labelled("ConfigMap", "mine", "data: {k: '1'}"), labelled("Thing", "mine", "spec: {k: '1'}")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec("", cm("shared", "2"), thing("shared", "spec: {k: '2'}")))
				s.good("$w")
				s.still("ConfigMap", "shared", "{metadata: {labels: {ours: mine}, annotations: {ours: mine}}, data: {k: '2'}}")
				s.still("Thing", "shared", "{metadata: {labels: {ours: mine}, annotations: {ours: mine}}, spec: {k: '2'}}")
			},
		},
	}
}

// driftCases are about objects that somebody else changes, or nobody.
func driftCases() map[string]Case {
	return map[string]Case{
		"drift is repaired on the event": {
			reason: "facts 1.5.1, 4.8: a changed field, a deleted object, a removed owner; Applied and its time are not touched",
			spec:   spec("", cm("a", "1"), deployment("d", "replicas: 3,"), thing("t", "spec: {size: 1}")),
			then: func(s *stage) {
				before := s.good("$w")
				s.tick()
				s.patch("ConfigMap", "a", "data: {k: theirs}")
				s.has("ConfigMap", "a", "data: {k: '1'}")
				s.patch("ConfigMap", "a", "data: {more: theirs}")
				s.has("ConfigMap", "a", "data: {k: '1', more: null}")
				s.patch("Deployment", "d", "spec: {replicas: 5}")
				s.has("Deployment", "d", "spec: {replicas: 3}")
				s.patch("Thing", "t", "spec: {size: 2}")
				s.has("Thing", "t", "spec: {size: 1}")
				for kind, name := range map[string]string{"ConfigMap": "a", "Deployment": "d", "Thing": "t"} {
					s.patch(kind, name, "metadata: {ownerReferences: null}")
					s.owned(kind, name, "$w")
					old := s.get(kind, name).GetUID()
					s.remove(kind, name)
					s.another(kind, name, old)
				}
				s.later()
				after := s.good("$w")
				s.times(before.Status.Conditions, after.Status.Conditions, map[string]bool{"Applied": false})
				for i := range before.Status.ResourceStatus.Manifests {
					s.times(before.Status.ResourceStatus.Manifests[i].Conditions, after.Status.ResourceStatus.Manifests[i].Conditions, map[string]bool{"Applied": false})
				}
				s.lists("$w", "configmaps/a", "deployments/d", "things/t")
			},
		},
		"an object that is as wanted is left alone": {
			reason: "facts 1.5.1: what the API server fills in is no drift; another generation that says the same writes nothing",
			spec:   spec("", deployment("d", "replicas: 0,"), account("sa"), thing("t", "spec: {size: 1}"), `{apiVersion: v1, kind: Service, metadata: {name: s, namespace: $ns}, spec: {ports: [{port: 80}]}}`),
			then: func(s *stage) {
				s.good("$w")
				s.owned("Service", "s", "$w")
				before := s.versions("Deployment/d", "ServiceAccount/sa", "Thing/t", "Service/s")
				s.later()
				if after := s.versions("Deployment/d", "ServiceAccount/sa", "Thing/t", "Service/s"); after != before {
					s.t.Errorf("written without a reason: generations and versions were %s, are %s", before, after)
				}
				s.update("$w", spec("", deployment("d", "replicas: 0,"), account("sa"), thing("t", "spec: {size: 1}"), `{apiVersion: v1, kind: Service, metadata: {name: s, namespace: $ns}, spec: {ports: [{port: 80}]}}`, cm("new", "1")))
				s.good("$w")
				for kind, name := range map[string]string{"Deployment": "d", "Thing": "t"} {
					if got := s.get(kind, name).GetGeneration(); got != 1 {
						s.t.Errorf("%s %s: generation %d, although nothing changed", kind, name, got)
					}
				}
			},
		},
		"an object that somebody is deleting is made again": {
			reason: "facts 1.5.1: the work still wants it; until the old one is gone nothing can be done",
			spec:   spec("", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $ns, finalizers: [example.com/held]}, data: {k: "1"}}`),
			then: func(s *stage) {
				s.good("$w")
				old := s.get("ConfigMap", "a").GetUID()
				s.remove("ConfigMap", "a")
				s.lift("ConfigMap", "a")
				s.another("ConfigMap", "a", old)
				s.update("$w", spec("", cm("b", "1")))
				s.good("$w")
				s.lift("ConfigMap", "a")
			},
		},
	}
}

// theirs is an object called shared with metadata of somebody else.
func theirs(kind, owner string) string {
	version := "v1"
	if kind == "Thing" {
		version = thingGroup + "/v1"
	}
	return fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: shared, namespace: $ns, labels: {theirs: label}, annotations: {theirs: note},
		finalizers: [example.com/theirs], ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: other, uid: %q}]}}`, version, kind, owner)
}

// labelled is an object called shared with a label and an annotation of ours.
func labelled(kind, value, rest string) string {
	version := "v1"
	if kind == "Thing" {
		version = thingGroup + "/v1"
	}
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: shared, namespace: $ns, labels: {ours: %[3]s}, annotations: {ours: %[3]s}}, %[4]s}", version, kind, value, rest)
}

// another waits until an object is there that is not the one with that uid.
func (s *stage) another(kind, name string, old types.UID) *unstructured.Unstructured {
	s.t.Helper()
	return s.until("another "+kind+" "+name, s.on(kind), s.text(name), func(obj *unstructured.Unstructured) error {
		switch {
		case obj == nil:
			return errAbsent
		case obj.GetUID() == old:
			return errPresent
		}
		return nil
	})
}

// versions of objects, given as "Kind/name".
func (s *stage) versions(names ...string) string {
	s.t.Helper()
	var out strings.Builder
	for _, n := range names {
		kind, name, _ := strings.Cut(n, "/")
		obj := s.get(kind, name)
		fmt.Fprintf(&out, "%s:%d:%s ", n, obj.GetGeneration(), obj.GetResourceVersion())
	}
	return out.String()
}
