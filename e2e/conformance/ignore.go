// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
	"strings"

	workv1 "open-cluster-management.io/api/work/v1"
)

// ignoreCases are about the ignoreFields of server-side apply.
func ignoreCases() map[string]Case {
	return map[string]Case{
		"OnSpokeChange keeps every edit until the manifest changes": {
			reason: "facts 1.5.5, 4.8: with the same hash the whole apply is skipped; a change applies these fields too",
			spec:   spec(ignoring("{condition: OnSpokeChange, jsonPaths: [.spec.a]}"), thing("t", "spec: {a: 1, b: 1}")),
			then: func(s *stage) {
				s.good("$w")
				s.owned("Thing", "t", "$w")
				s.hashed()
				s.patch("Thing", "t", "spec: {a: 5, b: 5}")
				s.later()
				s.still("Thing", "t", "spec: {a: 5, b: 5}")
				s.update("$w", spec(ignoring("{condition: OnSpokeChange, jsonPaths: [.spec.a]}"), thing("t", "spec: {a: 1, b: 1}"), cm("new", "1")))
				s.good("$w")
				s.still("Thing", "t", "spec: {a: 5, b: 5}")
				s.patch("Thing", "t", "metadata: {ownerReferences: null}")
				s.owned("Thing", "t", "$w")
				s.update("$w", spec(ignoring("{condition: OnSpokeChange, jsonPaths: [.spec.a]}"), thing("t", "spec: {a: 1, b: 2}"), cm("new", "1")))
				s.good("$w")
				s.still("Thing", "t", "spec: {a: 1, b: 2}")
			},
		},
		"a deleted object comes back whole": {
			reason: "facts 1.5.5: on create the full manifest is used",
			spec:   spec(ignoring("{condition: OnSpokePresent, jsonPaths: [.spec.a]}"), thing("t", "spec: {a: 1, b: 1}")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "t", "spec: {a: 5}")
				old := s.get("Thing", "t").GetUID()
				s.remove("Thing", "t")
				s.another("Thing", "t", old)
				s.has("Thing", "t", "spec: {a: 1, b: 1}")
			},
		},
		"both conditions may be used at once": {
			reason: "facts 1.5.5: each list has its own condition; they are a map by it",
			spec: spec(ignoring("{condition: OnSpokePresent, jsonPointers: [/spec/a]}", "{condition: OnSpokeChange, jsonPointers: [/spec/b]}"),
				thing("t", "spec: {a: 1, b: 1, c: 1}")),
			then: func(s *stage) {
				s.good("$w")
				s.patch("Thing", "t", "spec: {a: 5, b: 5, c: 5}")
				s.later()
				s.still("Thing", "t", "spec: {a: 5, b: 5, c: 5}")
				s.update("$w", spec(ignoring("{condition: OnSpokePresent, jsonPointers: [/spec/a]}", "{condition: OnSpokeChange, jsonPointers: [/spec/b]}"),
					thing("t", "spec: {a: 2, b: 2, c: 2}")))
				s.good("$w")
				s.still("Thing", "t", "spec: {a: 5, b: 2, c: 2}")
			},
		},
		"a bad JSON path and a pointer to nothing are passed over": {
			reason: "facts 1.5.5: the one is only logged, the other ignored",
			spec:   spec(ignoring(`{condition: OnSpokePresent, jsonPaths: ["{.spec[", .spec.none], jsonPointers: [/spec/none/below]}`), thing("t", "spec: {a: 1}")),
			want:   "work\n+work@1\n" + thingMeta(0, "t") + "+manifest@1",
		},
	}
}

// brokenCases are about fields that cannot be ignored, because nobody can say which.
func brokenCases() map[string]Case {
	broken := func(fields, message string) Case {
		return Case{
			reason: "facts 1.3, 1.5.5, issue 3 (bad input): it says which and why, bounded in time, and nothing of the manifest is applied",
			spec:   spec(ignoring("{condition: OnSpokePresent, "+fields+"}"), thing("t", "spec: {a: 1}"), cm("good", "1")),
			want: `
				work
				+failed@1
				Available=False ResourcesNotAvailable @1: 1 of 2 resources are not available
				` + thingMeta(0, "t") + `
				Applied=False AppliedManifestSSAIgnoreFieldError @1: Failed to process ignoreFields: ` + message + `
				+missing
				?+silent
				` + cmMeta(1, "good") + `
				+manifest@1
			`,
			then: func(s *stage) { s.absent("Thing", "t") },
		}
	}
	return map[string]Case{
		"a pointer without a slash is an error":       broken("jsonPointers: [spec/a]", "JSON Pointer error in 'spec/a': *"),
		"a jq expression that is none is an error":    broken(`jqPathExpressions: [".spec["]`, "JQ expression error in '.spec[': *"),
		"a jq expression that never ends is an error": broken(`jqPathExpressions: ["def f: f; f"]`, "JQ expression error in 'def f: f; f': *"),
		"a jq expression that only works is an error": broken(`jqPathExpressions: ["range(1000000000000)"]`, "JQ expression error in 'range(1000000000000)': *"),
	}
}

// presentCases are about OnSpokePresent, in each notation.
func presentCases() map[string]Case {
	cases := map[string]Case{}
	for name, field := range map[string]string{
		"a JSON path": "jsonPaths: [.spec.a]", "a JSON pointer": "jsonPointers: [/spec/a]", "a jq expression": "jqPathExpressions: [.spec.a]",
	} {
		ignored := ignoring("{condition: OnSpokePresent, " + field + "}")
		cases["OnSpokePresent leaves out what "+name+" names"] = Case{
			reason: "facts 1.5.5: applied on creation, never after; the others are applied when the manifest changes",
			spec:   spec(ignored, thing("t", "spec: {a: 1, b: 1}")),
			then: func(s *stage) {
				s.good("$w")
				s.still("Thing", "t", "spec: {a: 1, b: 1}")
				first := s.hashed()
				s.patch("Thing", "t", "spec: {a: 5}")
				s.update("$w", spec(ignored, thing("t", "spec: {a: 2, b: 1}")))
				s.good("$w")
				s.still("Thing", "t", "spec: {a: 5, b: 1}")
				if again := s.hashed(); again != first {
					s.t.Errorf("the hash %s became %s, although only an ignored field changed", first, again)
				}
				s.update("$w", spec(ignored, thing("t", "spec: {a: 2, b: 2}")))
				s.good("$w")
				s.still("Thing", "t", "spec: {a: 5, b: 2}")
				if again := s.hashed(); again == first {
					s.t.Error("the hash stayed, although the manifest changed")
				}
			},
		}
	}
	return cases
}

// ignoring applies the Thing t, but for fields.
func ignoring(fields ...string) string {
	return configs(option(things, "t", applied("force: true, ignoreFields: ["+strings.Join(fields, ", ")+"]")))
}

var md5Text = regexp.MustCompile(`^[0-9a-f]{32}$`)

// hashed returns the annotation of the Thing t by which an apply is skipped.
func (s *stage) hashed() string {
	s.t.Helper()
	hash := s.get("Thing", "t").GetAnnotations()[workv1.ManifestConfigSpecHashAnnotationKey]
	if !md5Text.MatchString(hash) {
		s.t.Error(fmt.Errorf("annotation %s is %q (facts 1.3)", workv1.ManifestConfigSpecHashAnnotationKey, hash))
	}
	return hash
}
