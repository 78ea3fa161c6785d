// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// bad is a WorkerDeployment with a template of one's own.
func bad(name, template string) string {
	return fmt.Sprintf("---\napiVersion: api.worker-deployment/v1alpha1\nkind: WorkerDeployment\nmetadata: {name: %s}\nspec: {template: %s}\n", name, template)
}

// template is one that is served, with further fields and without those that are given
// another value.
func (s *tests) template(script, more string) string {
	fields := "scriptName: " + script
	if !strings.Contains(more, "compatibilityDate") {
		fields += `, compatibilityDate: "2026-01-15"`
	}
	if !strings.Contains(more, "scriptUrls") {
		fields += fmt.Sprintf(`, scriptUrls: ["s3://%s/%s/hello/1"]`, s.store.Bucket, s.account)
	}
	if more != "" {
		fields += ", " + more
	}
	return "{" + fields + "}"
}

// testInvalidInput: the API server refuses what it can judge, and the status names the rest.
func (s *tests) testInvalidInput(t *testing.T) {
	for name, tc := range map[string]struct{ reason, template, word string }{
		"a script of upper case":   {reason: "a host and a path have no case for it", template: s.template("Hello", ""), word: "scriptName"},
		"a script with a dot":      {reason: "no Service has one in its name", template: s.template("a.b", ""), word: "scriptName"},
		"a script without a name":  {reason: "it could not be reached", template: s.template(`""`, ""), word: "scriptName"},
		"a binding without a name": {reason: "a script could not find it", template: s.template("a", "bindings: [{type: plain_text, name: ''}]"), word: "name"},
		"a date that is no text":   {reason: "it is not guessed at", template: s.template("a", "compatibilityDate: 20260115"), word: "compatibilityDate"},
	} {
		testbed.Refused(t, name+": "+tc.reason, s.owner, bad("refused", tc.template), []string{"apply", "-n", s.team, "-f", "-"}, tc.word)
	}
	s.put(t, "large", "1", map[string]string{"index.js": strings.Repeat(" ", 25<<20)})
	cases := s.testStatusNamesProblem()
	names := slices.Sorted(maps.Keys(cases))
	var all strings.Builder
	for _, name := range names {
		all.WriteString(bad(name, cases[name].template))
	}
	s.apply(t, all.String())
	for _, name := range names {
		tc := cases[name]
		s.waitForStatus(t, name, "is refused: "+tc.reason, func(got status) error {
			return got.is("Accepted", "False", tc.says, tc.words...)
		})
	}
	s.checkStillHello(t)
	s.checkStillServed(t, "a_parts", "again")
	s.Hub.Kubectl(t, append([]string{"delete", "workerdeployment", "-n", s.team}, names...)...)
}

// refusal is a template that the API server takes, and what the status says of it.
type refusal struct {
	reason, template, says string
	words                  []string
}

func (s *tests) testStatusNamesProblem() map[string]refusal {
	return map[string]refusal{
		"date": {
			reason: "there is no such day", template: s.template("date", `compatibilityDate: 13/45/2026`), says: "Invalid", words: []string{"compatibilityDate", "13/45/2026"},
		},
		"other-account": {
			reason: "it is another account's code", template: s.template("other-account", `scriptUrls: ["s3://workers/9999/hello/1"]`), says: "Invalid", words: []string{"9999"},
		},
		"climbing": {
			reason: "it would be another account's code", template: s.template("climbing", `scriptUrls: ["s3://workers/1234/../9999/hello"]`), says: "Invalid",
		},
		"other-bucket": {
			reason: "the operator reads one bucket", template: s.template("other-bucket", `scriptUrls: ["s3://elsewhere/1234/hello/1"]`), says: "Invalid", words: []string{"elsewhere"},
		},
		"nothing-stored": {
			reason: "there is nothing to serve", template: s.template("nothing-stored", `scriptUrls: ["1234/nothing/1"]`), says: "ScriptsMissing", words: []string{"1234/nothing/1"},
		},
		"twice": {
			reason: "nobody says which of the two it is", template: s.template("twice", `scriptUrls: ["1234/hello/1", "s3://workers/1234/hello/2"]`), says: "Invalid",
			words: []string{"index.js", "1234/hello/1", "1234/hello/2"},
		},
		"large": {
			reason: "the memory of builds is bounded", template: s.template("large", `scriptUrls: ["1234/large/1"]`), says: "Invalid", words: []string{"25.0 MiB", "16.0 MiB"},
		},
		"no-secret": {
			reason: "the script would start without it", template: s.template("no-secret", `secretRef: not-there`), says: "SecretMissing", words: []string{"not-there"},
		},
		"kv": {
			reason: "there is none here", template: s.template("kv", `bindings: [{name: CACHE, type: kv_namespace}]`), says: "Invalid", words: []string{"CACHE", "kv_namespace", "not supported"},
		},
		"unknown-kind": {
			reason: "nobody knows what it is", template: s.template("unknown-kind", `bindings: [{name: POT, type: teapot}]`), says: "Invalid", words: []string{"POT", "teapot", "unknown"},
		},
		"no-part": {
			reason: "the module is not stored", template: s.template("no-part", `bindings: [{name: BLOB, type: text_blob, part: absent.txt}]`), says: "Invalid", words: []string{"absent.txt"},
		},
		"same-script": {
			reason: "one path leads to one script", template: s.template("hello", ""), says: "NameTaken", words: []string{"hello"},
		},
		"same-service": {
			reason: "both would have one Service", template: s.template("a-parts", ""), says: "NameTaken", words: []string{"a_parts"},
		},
	}
}
