// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

// matchingCases are about which of the manifestConfigs applies; the name of a
// feedback value tells which one did.
func matchingCases() map[string]Case {
	read := func(name string) string { return paths(name, ".data.k") }
	shown := func(ordinal int, name, value string) string {
		return cmMeta(ordinal, name) + "+applied@1\n+there\n+heard\n" + value + " = String 1\n"
	}
	anywhere := func(group, resource, name, namespace, rest string) string {
		return "{resourceIdentifier: {group: '" + group + "', resource: '" + resource + "', name: '" + name + "', namespace: '" + namespace + "'}, " + rest + "}"
	}
	return map[string]Case{
		"a star stands for any text, anywhere in name and namespace, and the first match wins": {
			reason: "facts 1.4, 4.17: list order; group and resource are exact",
			spec: spec(configs(
				anywhere("*", "configmaps", "*", "*", read("by-group")),
				anywhere("", "*", "*", "*", read("by-resource")),
				anywhere("", "configmaps", "*", "no-such-namespace", read("by-namespace")),
				anywhere("", "configmaps", "pre-*", "$ns", read("prefix")),
				anywhere("", "configmaps", "*-post", "$ns", read("suffix")),
				anywhere("", "configmaps", "in*de", "$ns", read("inside")),
				anywhere("", "configmaps", "a*b*c", "con*", read("twice")),
				anywhere("", "configmaps", "exact", "$ns", read("exact")),
				anywhere("", "configmaps", "*", "*", read("any")),
				anywhere("", "configmaps", "*", "*", read("too-late")),
			), cm("pre-1", "1"), cm("1-post", "1"), cm("pre-post", "1"), cm("in.si.de", "1"), cm("inde", "1"),
				cm("axbxc", "1"), cm("exact", "1"), cm("exactly", "1"), cm("prefix-1", "1")),
			want: "work\n+work@1\n" + shown(0, "pre-1", "prefix") + shown(1, "1-post", "suffix") + shown(2, "pre-post", "prefix") +
				shown(3, "in.si.de", "inside") + shown(4, "inde", "inside") + shown(5, "axbxc", "twice") + shown(6, "exact", "exact") +
				shown(7, "exactly", "any") + shown(8, "prefix-1", "any"),
		},
		"each field is taken from the first option that has it": {
			reason: "facts 1.4, 4.17: feedback rules, condition rules and strategy are looked for each on its own",
			ready:  func(s *stage) { s.make(cm("a", "theirs")) },
			spec: spec(configs(
				option("configmaps", "a", "feedbackRules: []"),
				option("configmaps", "a", read("first")),
				option("configmaps", "*", read("second")+", "+strategy("CreateOnly")),
				option("configmaps", "a", strategy("Update")+", "+conditionRules(cel("Early", "", "true"))),
				option("configmaps", "*", conditionRules(cel("Late", "", "true"))),
			), cm("a", "1")),
			want: `
				work
				+work@1
				Early=True ConditionRulesAggregated @1: Manifest is Early
				` + cmMeta(0, "a") + `
				+applied@1
				+there
				+heard
				Early=True ConditionRuleEvaluated @1: Manifest is Early
				first = String theirs
			`,
		},
		"an option for nothing of the work does nothing": {
			reason: "facts 1.4: rules apply to what they match alone",
			spec:   spec(configs(option("configmaps", "b", read("b")), option("secrets", "a", read("secret")), option("apps/configmaps", "a", read("group"))), cm("a", "1")),
			want:   "work\n+work@1\n" + cmMeta(0, "a") + "+manifest@1",
		},
		"feedback comes at once, whatever the scrape type": {
			reason: "facts 1.4, 4.20: the last match decides the type, which resets an earlier Watch; neither may make feedback late",
			spec: spec(configs(
				option("configmaps", "*", read("value")+", feedbackScrapeType: Watch"),
				option("configmaps", "poll", strategy("CreateOnly")),
				option("configmaps", "watch", strategy("CreateOnly")+", feedbackScrapeType: Watch"),
			), cm("poll", "1"), cm("watch", "1")),
			want: "work\n+work@1\n" + shown(0, "poll", "value") + shown(1, "watch", "value"),
			then: func(s *stage) {
				for _, name := range []string{"poll", "watch"} {
					s.patch("ConfigMap", name, "data: {k: changed}")
				}
				s.shows("$w", "work\n+work@1\n"+cmMeta(0, "poll")+"+applied@1\n+there\n+heard\nvalue = String changed\n"+
					cmMeta(1, "watch")+"+applied@1\n+there\n+heard\nvalue = String changed")
			},
		},
	}
}
