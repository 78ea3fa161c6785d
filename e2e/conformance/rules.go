// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
)

// ruleCases are about conditionRules and their aggregation. The rows for a rule
// of another type and for an internal fault cannot be reached from outside: the
// definition of ManifestWork has no other type.
func ruleCases() map[string]Case {
	one := func(rules []string, work, manifest string) Case {
		return Case{
			spec: spec(configs(option(things, "t", conditionRules(rules...))), thing("t", "spec: {size: 3, text: abc, items: ["+strings.Repeat("1, ", 199)+"1]}")),
			want: "work\n+work@1\n" + work + "\n" + thingMeta(0, "t") + "+manifest@1\n" + manifest,
		}
	}
	same := func(reason string, rules []string, conditions ...string) Case {
		work := make([]string, len(conditions))
		for i, c := range conditions {
			work[i] = strings.NewReplacer("ConditionRuleEvaluated", "ConditionRulesAggregated", "ConditionRuleExpressionError", "ConditionRulesAggregated").Replace(c)
		}
		c := one(rules, strings.Join(work, "\n"), strings.Join(conditions, "\n"))
		c.reason = reason
		return c
	}
	return map[string]Case{
		"a CEL rule says whether it holds": same("facts 1.3, 1.7: the default messages; all expressions must hold",
			[]string{cel("Ready", "", "object.spec.size == 3"), cel("Great", "", "object.spec.size > 3"), cel("Both", "", "object.spec.size == 3", "object.spec.size > 3"), cel("All", "", "true", "object.metadata.name == 't'")},
			"Ready=True ConditionRuleEvaluated @1: Manifest is Ready", "Great=False ConditionRuleEvaluated @1: Manifest is not Great",
			"Both=False ConditionRuleEvaluated @1: Manifest is not Both", "All=True ConditionRuleEvaluated @1: Manifest is All"),
		"a rule may bring its message": same("facts 1.3, 1.7: an expression before a text before the default; an empty result overrides nothing",
			[]string{
				cel("Text", "message: as it is", "true"), cel("Said", `message: unsaid, messageExpression: "'n is ' + string(object.spec.size) + ', ' + string(result)"`, "false"),
				cel("Empty", `message: kept, messageExpression: "''"`, "true"), cel("Neither", `messageExpression: "''"`, "true"),
			},
			"Text=True ConditionRuleEvaluated @1: as it is", "Said=False ConditionRuleEvaluated @1: n is 3, false",
			"Empty=True ConditionRuleEvaluated @1: kept", "Neither=True ConditionRuleEvaluated @1: Manifest is Neither"),
		"an expression that fails says why": same("facts 1.3, 1.7, issue 3 (bad input): what does not compile, does not evaluate, or is no boolean",
			[]string{cel("Syntax", "", "object.("), cel("Missing", "", "object.spec.none == 1"), cel("Number", "", "object.spec.size + 1"), cel("Unknown", "", "nothing.here"), cel("Good", "", "true")},
			"Syntax=False ConditionRuleExpressionError @1: *", "Missing=False ConditionRuleExpressionError @1: *", "Number=False ConditionRuleExpressionError @1: *",
			"Unknown=False ConditionRuleExpressionError @1: *", "Good=True ConditionRuleEvaluated @1: Manifest is Good"),
		"an expression that costs too much is stopped": same("facts 1.7, issue 3 (bad input): the limits of Kubernetes; the condition says so",
			[]string{cel("Heavy", "", "object.spec.items.all(a, object.spec.items.all(b, object.spec.items.all(c, object.spec.items.all(d, a + b + c + d > 0))))")},
			"Heavy=False ConditionRuleExpressionError @1: *"),
		"expressions have the libraries of Kubernetes": same("facts 1.7: optional types, strings, lists, regex, URLs, quantity, IP, CIDR, format, semver, hasConditions",
			[]string{
				cel("Optional", "", "object.?spec.none.orValue(1) == 1"), cel("Strings", "", "'a-b'.replace('-', '+') == 'a+b'"), cel("Lists", "", "[1, 2].sum() == 3"),
				cel("Regex", "", "'abc123'.find('[0-9]+') == '123'"), cel("URLs", "", "url('https://example.com/x').getHost() == 'example.com'"),
				cel("Quantity", "", "quantity('1k').isGreaterThan(quantity('1'))"), cel("Address", "", "ip('10.0.0.1').family() == 4"),
				cel("Network", "", "cidr('10.0.0.0/8').containsIP('10.0.0.1')"), cel("Format", "", "!format.dns1123Label().validate('a').hasValue()"),
				cel("Semver", "", "semver('1.2.3').isLessThan(semver('1.3.0'))"), cel("Conditions", "", "!has(object.status) || hasConditions(object.status)"),
			},
			"Optional=True ConditionRuleEvaluated @1: Manifest is Optional", "Strings=True ConditionRuleEvaluated @1: Manifest is Strings",
			"Lists=True ConditionRuleEvaluated @1: Manifest is Lists", "Regex=True ConditionRuleEvaluated @1: Manifest is Regex",
			"URLs=True ConditionRuleEvaluated @1: Manifest is URLs", "Quantity=True ConditionRuleEvaluated @1: Manifest is Quantity",
			"Address=True ConditionRuleEvaluated @1: Manifest is Address", "Network=True ConditionRuleEvaluated @1: Manifest is Network",
			"Format=True ConditionRuleEvaluated @1: Manifest is Format", "Semver=True ConditionRuleEvaluated @1: Manifest is Semver",
			"Conditions=True ConditionRuleEvaluated @1: Manifest is Conditions"),
	}
}

// aggregateCases are about conditions of rules over time, and over manifests.
func aggregateCases() map[string]Case {
	return map[string]Case{
		"hasConditions tells whether a status has any": {
			reason: "facts 1.7",
			spec:   spec(configs(option(things, "t", conditionRules(cel("Told", "", "hasConditions(object.status)")))), thing("t", "spec: {}")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "t", "status: {conditions: [{type: Any, status: 'True'}]}", "status")
				s.shows("$w", "work\n+work@1\nTold=True ConditionRulesAggregated @1: Manifest is Told\n"+thingMeta(0, "t")+
					"+manifest@1\nTold=True ConditionRuleEvaluated @1: Manifest is Told")
			},
		},
		"a well-known rule that a kind does not have gives no condition": {
			reason: "facts 1.7: Complete is known of Jobs and Pods alone; other names are not known at all",
			spec:   spec(configs(option(things, "t", conditionRules(wellKnown("Complete"), wellKnown("Unheard")))), thing("t", "spec: {}")),
			want:   "work\n+work@1\n" + thingMeta(0, "t") + "+manifest@1",
		},
		"a rule follows the object": {
			reason: "facts 1.7, issue 3 (live): evaluated on the event; the work says it too, with the time of the change",
			spec:   spec(configs(option(things, "t", conditionRules(cel("Ready", "", "object.?status.ready.orValue(false)")))), thing("t", "spec: {}")),
			want: "work\n+work@1\nReady=False ConditionRulesAggregated @1: Manifest is not Ready\n" + thingMeta(0, "t") +
				"+manifest@1\nReady=False ConditionRuleEvaluated @1: Manifest is not Ready",
			then: func(s *stage) {
				before := s.good("$w")
				s.tick()
				s.patch("Thing", "t", "status: {ready: true}", "status")
				after := s.shows("$w", "work\n+work@1\nReady=True ConditionRulesAggregated @1: Manifest is Ready\n"+thingMeta(0, "t")+
					"+manifest@1\nReady=True ConditionRuleEvaluated @1: Manifest is Ready")
				moved := map[string]bool{"Ready": true, "Applied": false, "Available": false}
				s.times(before.Status.Conditions, after.Status.Conditions, moved)
				s.times(before.Status.ResourceStatus.Manifests[0].Conditions, after.Status.ResourceStatus.Manifests[0].Conditions, moved)
			},
		},
		"False beats True, but for Progressing": {
			reason: "facts 1.3: aggregation; with one manifest its message, with more their number",
			spec: spec(configs(
				option(things, "alone", conditionRules(cel("Alone", "message: me", "true"))),
				option(things, "*", conditionRules(cel("Ready", "", "object.spec.ready"), cel("Progressing", "", "object.spec.ready"), cel("Degraded", "", "object.spec.ready")))),
				thing("a", "spec: {ready: true}"), thing("b", "spec: {ready: false}"), thing("alone", "spec: {}")),
			want: `
				work
				+work@1
				Ready=False ConditionRulesAggregated @1: Aggregated from 2 manifest conditions
				Progressing=True ConditionRulesAggregated @1: Aggregated from 2 manifest conditions
				Degraded=False ConditionRulesAggregated @1: Aggregated from 2 manifest conditions
				Alone=True ConditionRulesAggregated @1: me
				` + thingMeta(0, "a") + `
				+manifest@1
				Ready=True ConditionRuleEvaluated @1: Manifest is Ready
				Progressing=True ConditionRuleEvaluated @1: Manifest is Progressing
				Degraded=True ConditionRuleEvaluated @1: Manifest is Degraded
				` + thingMeta(1, "b") + `
				+manifest@1
				Ready=False ConditionRuleEvaluated @1: Manifest is not Ready
				Progressing=False ConditionRuleEvaluated @1: Manifest is not Progressing
				Degraded=False ConditionRuleEvaluated @1: Manifest is not Degraded
				` + thingMeta(2, "alone") + `
				+manifest@1
				Alone=True ConditionRuleEvaluated @1: me
			`,
		},
		"what a rule said goes with the rule": {
			reason: "facts 1.7: conditions of rules with another observedGeneration are pruned, at both levels",
			spec:   spec(configs(option(things, "t", conditionRules(cel("Old", "", "true"), cel("Kept", "", "true")))), thing("t", "spec: {}")),
			then: func(s *stage) {
				s.good("$w")
				s.update("$w", spec(configs(option(things, "t", conditionRules(cel("Kept", "", "true"), cel("New", "", "true")))), thing("t", "spec: {}")))
				s.shows("$w", "work\n+work@2\nKept=True ConditionRulesAggregated @2: Manifest is Kept\nNew=True ConditionRulesAggregated @2: Manifest is New\n"+thingMeta(0, "t")+
					"+there\n+silent\nKept=True ConditionRuleEvaluated @2: Manifest is Kept\nApplied=True AppliedManifestComplete @2: *\nNew=True ConditionRuleEvaluated @2: Manifest is New")
				s.update("$w", spec("", thing("t", "spec: {}")))
				s.shows("$w", "work\n+work@3\n"+thingMeta(0, "t")+"+again@3")
			},
		},
		"what a rule said stays when the object cannot be found": {
			reason: "facts 1.3: when the GET fails, the old rule conditions stay",
			ready:  func(s *stage) { s.make(thing("t", "spec: {size: 3}")) },
			spec:   spec(configs(option(things, "t", strategy("ReadOnly")+", "+conditionRules(cel("Ready", "", "object.spec.size == 3")))), thing("t", "spec: {}")),
			then: func(s *stage) {
				s.good("$w")
				s.remove("Thing", "t")
				s.shows("$w", "work\nApplied=True AppliedManifestWorkComplete @1: *\nAvailable=False ResourcesNotAvailable @1: 1 of 1 resources are not available\n"+
					"Ready=True ConditionRulesAggregated @1: Manifest is Ready\n"+thingMeta(0, "t")+"+applied@1\n+missing\n+silent\nReady=True ConditionRuleEvaluated @1: Manifest is Ready")
			},
		},
	}
}

// healthyCases are about the well-known rule Healthy, which the original does not
// have.
func healthyCases() map[string]Case {
	health := func(status, reason string) string {
		return fmt.Sprintf("work\n+work@1\nHealthy=%[1]s ConditionRulesAggregated @1: *\n%[2]s+manifest@1\nHealthy=%[1]s %[3]s @1: *", status, thingMeta(0, "t"), reason)
	}
	return map[string]Case{
		"Healthy follows what kstatus says of the object": {
			reason: "issue 3 (better than the original): reasons Current, InProgress, Failed, Terminating, for every kind",
			spec:   spec(configs(option(things, "t", conditionRules(wellKnown("Healthy")))), thing("t", "spec: {}")),
			want:   health("True", "Current"),
			then: func(s *stage) {
				s.patch("Thing", "t", "status: {conditions: [{type: Reconciling, status: 'True', reason: Busy, message: at it}]}", "status")
				s.shows("$w", health("False", "InProgress"))
				s.patch("Thing", "t", "status: {conditions: [{type: Stalled, status: 'True', reason: Stuck, message: stuck}]}", "status")
				s.shows("$w", health("False", "Failed"))
				s.patch("Thing", "t", "metadata: {finalizers: [example.com/held]}")
				s.remove("Thing", "t")
				s.shows("$w", health("False", "Terminating"))
				s.lift("Thing", "t")
				s.shows("$w", health("True", "Current"))
			},
		},
		"Healthy is aggregated as any rule": {
			reason: "issue 3 (better than the original): the work is healthy if every manifest is",
			spec: spec(configs(option(things, "*", conditionRules(wellKnown("Healthy"))), option("apps/deployments", "*", conditionRules(wellKnown("Healthy")))),
				thing("t", "spec: {}"), deployment("d", "replicas: 1,")),
			want: `
				work
				+work@1
				Healthy=False ConditionRulesAggregated @1: Aggregated from 2 manifest conditions
				` + thingMeta(0, "t") + `
				+manifest@1
				Healthy=True Current @1: *
				1 apps/v1 Deployment deployments $ns/d
				+manifest@1
				Healthy=False InProgress @1: *
			`,
			then: func(s *stage) {
				s.patch("Deployment", "d", `status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
					conditions: [{type: Available, status: "True", reason: R, message: m}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable, message: m}]}`, "status")
				s.untilCondition("Healthy", "True")
			},
		},
	}
}
