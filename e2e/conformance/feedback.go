// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	workv1 "open-cluster-management.io/api/work/v1"
)

const byKind = "feedbackRules: [{type: WellKnownStatus}]"

// manyTypes is a Thing with a value of every type.
var manyTypes = thing("t", `spec: {int: 3, negative: -4, zero: 0, text: x, empty: "", right: true, wrong: false, nothing: null, float: 1.5,
	map: {b: 2, a: [1, null]}, list: [1, 2], objects: [{name: one, size: 1}, {name: two, size: 2}], "dotted.key": d}`)

// feedbackCases hold whether or not raw feedback is on.
func feedbackCases() map[string]Case {
	failing := func(values, message string) string {
		return "work\n+work@1\n" + thingMeta(0, "t") + "+applied@1\n+there\nStatusFeedbackSynced=False StatusFeedbackSyncFailed: Sync status feedback failed with error " +
			message + "\n" + values
	}
	return map[string]Case{
		"integers, strings and booleans are reported as such": {
			reason: "facts 1.6: a missing key and null give no value, and no error",
			spec: spec(configs(option(things, "t", paths("int", ".spec.int", "negative", ".spec.negative", "zero", ".spec.zero", "text", ".spec.text", "empty", ".spec.empty",
				"right", ".spec.right", "wrong", ".spec.wrong", "nothing", ".spec.nothing", "missing", ".spec.missing.more", "item", ".spec.list[1]",
				"filtered", `.spec.objects[?(@.name=='two')].size`, "dotted", `.spec.dotted\.key`, "kind", ".kind"))), manyTypes),
			want: "work\n+work@1\n" + thingMeta(0, "t") + `
				+applied@1
				+there
				+heard
				int = Integer 3
				negative = Integer -4
				zero = Integer 0
				text = String x
				empty = String
				right = Boolean true
				wrong = Boolean false
				item = Integer 2
				filtered = Integer 2
				dotted = String d
				kind = String Thing
			`,
		},
		"another version of the kind is an error": {
			reason: "facts 1.6, 1.3: the other values are reported",
			spec: spec(configs(option(things, "t", `feedbackRules: [{type: JSONPaths, jsonPaths: [{name: old, version: v1beta1, path: .spec.int}, {name: new, version: v1, path: .spec.int}]}]`)),
				manyTypes),
			want: failing("new = Integer 3", "version set in the path old is not matched for the related resource"),
		},
		"a JSON path that is none is an error": {
			reason: "facts 1.6, issue 3 (bad input): the work is applied, the other values are reported",
			spec:   spec(configs(option(things, "t", paths("good", ".spec.int", "bad", ".spec[", "worse", ".spec.list[?(", "last", ".spec.text"))), manyTypes),
			want:   failing("good = Integer 3\nlast = String x", "*"),
		},
		"a JSON path that costs much is bounded": {
			reason: "issue 3 (bad input): it is an error or no value, at once",
			spec:   spec(configs(option(things, "t", paths("deep", strings.Repeat("..*", 20), "good", ".spec.int"))), manyTypes),
			then: func(s *stage) {
				s.untilWork("$w", "reports the good value", func(mw *workv1.ManifestWork) error {
					if text := strings.Join(render(mw.Status), "\n"); !strings.Contains(text, "good = Integer 3") {
						return fmt.Errorf("it shows:\n%s", text)
					}
					return nil
				})
			},
		},
		"values follow the object, and go with what they were read from": {
			reason: "facts 1.6, 4.20: a changed, added and removed field",
			spec:   spec(configs(option(things, "t", paths("a", ".status.a", "b", ".status.b"))), thing("t", "spec: {}")),
			want:   "work\n+work@1\n" + thingMeta(0, "t") + "+applied@1\n+there\n+heard",
			then: func(s *stage) {
				for _, step := range [][2]string{
					{"status: {a: 1}", "a = Integer 1"},
					{"status: {a: 2, b: x}", "a = Integer 2\nb = String x"},
					{"status: {a: null}", "b = String x"},
					{"status: {b: null}", ""},
				} {
					s.patch("Thing", "t", step[0], "status")
					s.shows("$w", "work\n+work@1\n"+thingMeta(0, "t")+"+applied@1\n+there\n+heard\n"+step[1])
				}
			},
		},
	}
}

// knownCases are about the values that some kinds have without a path.
func knownCases() map[string]Case {
	return map[string]Case{
		"a Job has well-known values": {
			reason: "facts 1.6",
			spec:   spec(configs(option("batch/jobs", "j", byKind)), job("")),
			want:   "work\n+work@1\n0 batch/v1 Job jobs $ns/j\n+applied@1\n+there\n+heard",
			then: func(s *stage) {
				s.patch("Job", "j", finishedJob, "status")
				s.shows("$w", "work\n+work@1\n0 batch/v1 Job jobs $ns/j\n+applied@1\n+there\n+heard\nJobComplete = String True\nJobSucceeded = Integer 1")
			},
		},
		"a Deployment has well-known values": {
			reason: "facts 1.6: in this order, those that the status has",
			spec:   spec(configs(option("apps/deployments", "d", byKind)), deployment("d", "replicas: 3,")),
			want:   "work\n+work@1\n0 apps/v1 Deployment deployments $ns/d\n+applied@1\n+there\n+heard",
			then: func(s *stage) {
				s.patch("Deployment", "d", "status: {replicas: 3, updatedReplicas: 3, readyReplicas: 2, unavailableReplicas: 1}", "status")
				s.shows("$w", "work\n+work@1\n0 apps/v1 Deployment deployments $ns/d\n+applied@1\n+there\n+heard\nReadyReplicas = Integer 2\nReplicas = Integer 3")
				s.patch("Deployment", "d", "status: {replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3, unavailableReplicas: 0}", "status")
				s.shows("$w", "work\n+work@1\n0 apps/v1 Deployment deployments $ns/d\n+applied@1\n+there\n+heard\n"+
					"ReadyReplicas = Integer 3\nReplicas = Integer 3\nAvailableReplicas = Integer 3")
			},
		},
		"a DaemonSet has well-known values": {
			reason: "facts 1.6",
			spec: spec(configs(option("apps/daemonsets", "d", byKind)), `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: $ns}, spec: {
				selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {nodeSelector: {none: such}, containers: [{name: main, image: example.com/none}]}}}}`),
			then: func(s *stage) {
				s.good("$w")
				s.patch("DaemonSet", "d", "status: {desiredNumberScheduled: 3, currentNumberScheduled: 3, numberMisscheduled: 0, numberReady: 2, numberAvailable: 1}", "status")
				s.shows("$w", "work\n+work@1\n0 apps/v1 DaemonSet daemonsets $ns/d\n+applied@1\n+there\n+heard\n"+
					"NumberReady = Integer 2\nDesiredNumberScheduled = Integer 3\nNumberAvailable = Integer 1")
			},
		},
		"a Pod has well-known values": {
			reason: "facts 1.6",
			spec: spec(configs(option("pods", "p", byKind)), account("sa"), `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: $ns},
				spec: {serviceAccountName: sa, automountServiceAccountToken: false, schedulerName: example.com/nobody, containers: [{name: main, image: example.com/none}]}}`),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Pod", "p", "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}", "status")
				s.shows("$w", "work\n+work@1\n0 v1 ServiceAccount serviceaccounts $ns/sa\n+manifest@1\n1 v1 Pod pods $ns/p\n+applied@1\n+there\n+heard\n"+
					"PodReady = String True\nPodPhase = String Running")
				s.remove("Pod", "p")
			},
		},
		"a kind without well-known values is an error": {
			reason: "facts 1.6, 1.3",
			spec:   spec(configs(option("configmaps", "a", byKind)), cm("a", "1")),
			want: "work\n+work@1\n" + cmMeta(0, "a") + "+applied@1\n+there\n" +
				"StatusFeedbackSynced=False StatusFeedbackSyncFailed: Sync status feedback failed with error cannot find the wellknown statuses for resource with gvk /v1, Kind=ConfigMap",
		},
	}
}

// finishedJob is a status that the API server takes for a finished Job.
const finishedJob = `status: {startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:00:01Z", succeeded: 1, uncountedTerminatedPods: {}, conditions: [
	{type: SuccessCriteriaMet, status: "True", lastTransitionTime: "2026-01-01T00:00:01Z", lastProbeTime: "2026-01-01T00:00:01Z"},
	{type: Complete, status: "True", lastTransitionTime: "2026-01-01T00:00:01Z", lastProbeTime: "2026-01-01T00:00:01Z"}]}`

// gateCases are about the gate RawFeedbackJsonString, when it is off.
func gateCases() map[string]Case {
	return map[string]Case{
		"a structure, a list and a float are errors": {
			reason: "facts 1.6, 4.18: StatusFeedbackSynced is False, not a value; the good values are kept",
			spec:   spec(configs(option(things, "t", paths("before", ".spec.int", "map", ".spec.map", "list", ".spec.list", "float", ".spec.float", "after", ".spec.text"))), manyTypes),
			want: "work\n+work@1\n" + thingMeta(0, "t") + "+applied@1\n+there\nStatusFeedbackSynced=False StatusFeedbackSyncFailed: Sync status feedback failed with error *\n" +
				"before = Integer 3\nafter = String x",
		},
		"of several results the first counts": {
			reason: "facts 1.6",
			spec:   spec(configs(option(things, "t", paths("names", ".spec.objects[*].name", "items", ".spec.list[*]"))), manyTypes),
			want:   "work\n+work@1\n" + thingMeta(0, "t") + "+applied@1\n+there\n+heard\nnames = String one\nitems = Integer 1",
		},
	}
}

// rawCases are about the gate RawFeedbackJsonString, when it is on.
func rawCases() map[string]Case {
	return map[string]Case{
		"a structure, a list and a float are compact JSON": {
			reason: "facts 1.6, 4.18: keys sorted, nulls kept; what is an integer, string or boolean stays one",
			spec: spec(configs(option(things, "t", paths("map", ".spec.map", "list", ".spec.list", "float", ".spec.float", "int", ".spec.int", "text", ".spec.text",
				"nothing", ".spec.nothing"))), manyTypes),
			want: "work\n+work@1\n" + thingMeta(0, "t") + `
				+applied@1
				+there
				+heard
				map = JsonRaw {"a":[1,null],"b":2}
				list = JsonRaw [1,2]
				float = JsonRaw 1.5
				int = Integer 3
				text = String x
			`,
		},
		"several results are a JSON list": {
			reason: "facts 1.6",
			spec:   spec(configs(option(things, "t", paths("names", ".spec.objects[*].name", "one", ".spec.objects[?(@.name=='two')].name"))), manyTypes),
			want:   "work\n+work@1\n" + thingMeta(0, "t") + "+applied@1\n+there\n+heard\n" + `names = JsonRaw ["one","two"]` + "\none = String two",
		},
		"what is longer than the limit is an error": {
			reason: "facts 1.2, 1.6: at most 1024 characters; the other values are reported",
			spec: spec(configs(option(things, "t", paths("long", ".spec.long", "fits", ".spec.fits"))),
				thing("t", fmt.Sprintf("spec: {long: [%q], fits: [%q]}", strings.Repeat("x", 1021), strings.Repeat("x", 1020)))),
			want: "work\n+work@1\n" + thingMeta(0, "t") + "+applied@1\n+there\nStatusFeedbackSynced=False StatusFeedbackSyncFailed: Sync status feedback failed with error *\n" +
				`fits = JsonRaw ["` + strings.Repeat("x", 1020) + `"]`,
		},
	}
}
