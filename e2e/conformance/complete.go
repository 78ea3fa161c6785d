// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	workv1 "open-cluster-management.io/api/work/v1"
)

// untilCondition waits until a condition of the case's work has a status at its present
// generation.
func (s *stage) untilCondition(kind, status string) {
	s.t.Helper()
	s.untilWork("$w", kind+"="+status, func(mw *workv1.ManifestWork) error {
		c := meta.FindStatusCondition(mw.Status.Conditions, kind)
		if c == nil || string(c.Status) != status || c.ObservedGeneration != mw.Generation {
			return fmt.Errorf("at generation %d it shows:\n%s", mw.Generation, strings.Join(render(mw.Status), "\n"))
		}
		return nil
	})
}

// completeCases are about what a completed work, or manifest, does no more.
func completeCases() map[string]Case {
	finished := func(kind, name string) string {
		return fmt.Sprintf("work\n+work@1\nComplete=True ConditionRulesAggregated @1: %[1]s\n%[2]s+manifest@1\nComplete=True ConditionRuleEvaluated @1: %[1]s", kind, name)
	}
	return map[string]Case{
		"a Job is complete when it has finished": {
			reason: "facts 1.7: Complete or Failed",
			spec:   spec(configs(option("batch/jobs", "j", conditionRules(wellKnown("Complete")))), job("")),
			want: `
				work
				+work@1
				Complete=False ConditionRulesAggregated @1: Job is not finished
				0 batch/v1 Job jobs $ns/j
				+manifest@1
				Complete=False ConditionRuleEvaluated @1: Job is not finished
			`,
			then: func(s *stage) {
				s.patch("Job", "j", finishedJob, "status")
				s.shows("$w", finished("Job is finished", "0 batch/v1 Job jobs $ns/j\n"))
			},
		},
		"a Job that failed is complete too": {
			reason: "facts 1.7: Complete or Failed; a message of the rule overrides",
			spec:   spec(configs(option("batch/jobs", "j", conditionRules("{condition: Complete, type: WellKnownConditions, message: over}"))), job("")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Job", "j", strings.NewReplacer("SuccessCriteriaMet", "FailureTarget", "type: Complete", "type: Failed", `completionTime: "2026-01-01T00:00:01Z", succeeded: 1`, "failed: 1").Replace(finishedJob), "status")
				s.shows("$w", finished("over", "0 batch/v1 Job jobs $ns/j\n"))
			},
		},
		"a Pod is complete when its phase says so": {
			reason: "facts 1.7: Succeeded or Failed",
			spec: spec(configs(option("pods", "p", conditionRules(wellKnown("Complete")))), account("sa"), `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: $ns},
				spec: {serviceAccountName: sa, automountServiceAccountToken: false, schedulerName: example.com/nobody, containers: [{name: main, image: example.com/none}]}}`),
			then: func(s *stage) {
				shown := func(status, phase string) string {
					return fmt.Sprintf("work\n+work@1\nComplete=%[1]s ConditionRulesAggregated @1: Pod is in phase %[2]s\n0 v1 ServiceAccount serviceaccounts $ns/sa\n+manifest@1\n"+
						"1 v1 Pod pods $ns/p\n+manifest@1\nComplete=%[1]s ConditionRuleEvaluated @1: Pod is in phase %[2]s", status, phase)
				}
				s.shows("$w", shown("False", "Pending"))
				s.patch("Pod", "p", "status: {phase: Running}", "status")
				s.shows("$w", shown("False", "Running"))
				s.patch("Pod", "p", "status: {phase: Succeeded}", "status")
				s.shows("$w", shown("True", "Succeeded"))
				s.remove("Pod", "p")
			},
		},
	}
}

// completedCases are about what a completed work, or manifest, does no more.
func completedCases() map[string]Case {
	done := conditionRules(cel("Complete", "", "object.?status.done.orValue(false)"))
	return map[string]Case{
		"a completed work is neither updated nor repaired": {
			reason: "facts 1.7, 4.8, 4.22: later spec changes are ignored, edits and deletions stay; its status is still collected",
			spec:   spec(configs(option(things, "t", done+", "+paths("n", ".status.size"))), thing("t", "spec: {a: 1}"), cm("a", "1"), cm("b", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "t", "status: {done: true, size: 1}", "status")
				s.untilCondition("Complete", "True")
				s.patch("Thing", "t", "spec: {a: 2}")
				s.patch("ConfigMap", "a", "data: {k: theirs}")
				s.remove("ConfigMap", "b")
				s.later()
				s.still("Thing", "t", "spec: {a: 2}")
				s.still("ConfigMap", "a", "data: {k: theirs}")
				s.absent("ConfigMap", "b")
				s.update("$w", spec(configs(option(things, "t", done+", "+paths("n", ".status.size"))), thing("t", "spec: {a: 3}"), cm("a", "3"), cm("c", "1")))
				s.later()
				s.still("Thing", "t", "spec: {a: 2}")
				s.still("ConfigMap", "a", "data: {k: theirs}")
				s.absent("ConfigMap", "c")
				s.patch("Thing", "t", "status: {size: 2}", "status")
				s.untilWork("$w", "still collects", func(mw *workv1.ManifestWork) error {
					if text := strings.Join(render(mw.Status), "\n"); !strings.Contains(text, "n = Integer 2") {
						return fmt.Errorf("it shows:\n%s", text)
					}
					return nil
				})
				s.patch("Thing", "t", "status: {done: false}", "status")
				s.has("ConfigMap", "a", "data: {k: '3'}")
				s.has("ConfigMap", "c", "data: {k: '1'}")
				s.has("Thing", "t", "spec: {a: 3}")
			},
		},
		"a completed manifest is not applied again, the others are": {
			reason: "facts 1.7: Complete of the manifest alone; the work is not complete while another is not",
			spec:   spec(configs(option(things, "*", done)), thing("one", "spec: {a: 1}"), thing("two", "spec: {a: 1}"), cm("a", "1")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "one", "status: {done: true}", "status")
				s.shows("$w", `
					work
					+work@1
					Complete=False ConditionRulesAggregated @1: Aggregated from 2 manifest conditions
					`+thingMeta(0, "one")+`
					+manifest@1
					Complete=True ConditionRuleEvaluated @1: Manifest is Complete
					`+thingMeta(1, "two")+`
					+manifest@1
					Complete=False ConditionRuleEvaluated @1: Manifest is not Complete
					`+cmMeta(2, "a")+`
					+manifest@1
				`)
				s.patch("Thing", "one", "spec: {a: 5}")
				s.patch("Thing", "two", "spec: {a: 5}")
				s.has("Thing", "two", "spec: {a: 1}")
				s.later()
				s.still("Thing", "one", "spec: {a: 5}")
				s.update("$w", spec(configs(option(things, "*", done)), thing("one", "spec: {a: 2}"), thing("two", "spec: {a: 2}"), cm("a", "2")))
				s.has("Thing", "two", "spec: {a: 2}")
				s.has("ConfigMap", "a", "data: {k: '2'}")
				s.later()
				s.still("Thing", "one", "spec: {a: 5}")
			},
		},
	}
}
