// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func goodAction() Action {
	return Action{
		Requester: Requester{User: "alice", Groups: []string{"dev"}}, Verb: VerbCreate, Target: Target{Namespace: "ns"},
		Template: json.RawMessage(`{"kind":"ConfigMap"}`), MaxBytes: 512 << 10,
	}
}

func goodDeletion() Action {
	return Action{
		Requester: Requester{User: "alice"}, Verb: VerbDelete,
		Target: Target{Resource: "configmaps", Namespace: "ns", Name: "a"}, MaxBytes: 1,
	}
}

func TestActionsComeBack(t *testing.T) {
	update := goodAction()
	update.Verb, update.Secrets, update.Target = VerbUpdate, SecretsShown, Target{}
	for name, want := range map[string]Action{"a creation": goodAction(), "an update": update, "a deletion": goodDeletion()} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeAction(bodyOf(t, want))
			if diff := cmp.Diff(want, got, bytesAtOnce); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestActionsThatNoHubSendsAreRefused(t *testing.T) {
	tests := map[string]struct {
		reason string
		from   Action
		spoil  func(*Action)
	}{
		"of nobody":                   {reason: "nobody would be impersonated", from: goodAction(), spoil: func(a *Action) { a.Requester.User = "" }},
		"no verb":                     {reason: "nothing would be done, and said to be", from: goodAction(), spoil: func(a *Action) { a.Verb = "" }},
		"a verb in another case":      {reason: "the hub reads cases", from: goodAction(), spoil: func(a *Action) { a.Verb = "create" }},
		"an odd verb":                 {reason: "nothing would be done, and said to be", from: goodAction(), spoil: func(a *Action) { a.Verb = "Patch" }},
		"an odd policy":               {reason: "a later one may hide more", from: goodAction(), spoil: func(a *Action) { a.Secrets = "Sometimes" }},
		"of no bytes":                 {reason: "nothing would fit", from: goodAction(), spoil: func(a *Action) { a.MaxBytes = 0 }},
		"of too many bytes":           {reason: "no status would take it", from: goodAction(), spoil: func(a *Action) { a.MaxBytes = MaxViewBytes + 1 }},
		"no template":                 {reason: "there is nothing to make", from: goodAction(), spoil: func(a *Action) { a.Template = nil }},
		"a template that is a list":   {reason: "one object is made", from: goodAction(), spoil: func(a *Action) { a.Template = json.RawMessage(`[{}]`) }},
		"a template of an empty list": {reason: "one object is made", from: goodAction(), spoil: func(a *Action) { a.Template = json.RawMessage(`[]`) }},
		"a template that is null":     {reason: "there is nothing to make", from: goodAction(), spoil: func(a *Action) { a.Template = json.RawMessage(`null`) }},
		"a large template": {reason: "templates are bounded", from: goodAction(), spoil: func(a *Action) {
			a.Template = bodyOf(t, map[string]string{"a": strings.Repeat("b", MaxActionTemplate)})
		}},
		"a name beside a template":   {reason: "which of the two is meant?", from: goodAction(), spoil: func(a *Action) { a.Target.Name = "n" }},
		"a kind beside a template":   {reason: "which of the two is meant?", from: goodAction(), spoil: func(a *Action) { a.Target.Kind = "Secret" }},
		"a long namespace":           {reason: "names are bounded", from: goodAction(), spoil: func(a *Action) { a.Target.Namespace = strings.Repeat("n", maxName+1) }},
		"a deletion by a template":   {reason: "the hub reads it", from: goodDeletion(), spoil: func(a *Action) { a.Template = json.RawMessage(`{}`) }},
		"a deletion of no name":      {reason: "the collection would go", from: goodDeletion(), spoil: func(a *Action) { a.Target.Name = "" }},
		"a deletion of nothing":      {reason: "nothing is named", from: goodDeletion(), spoil: func(a *Action) { a.Target = Target{} }},
		"a deletion of no resource":  {reason: "nothing is named", from: goodDeletion(), spoil: func(a *Action) { a.Target.Resource = "" }},
		"a deletion of a long name":  {reason: "names are bounded", from: goodDeletion(), spoil: func(a *Action) { a.Target.Name = strings.Repeat("n", maxName+1) }},
		"a deletion by another case": {reason: "the hub reads cases", from: goodDeletion(), spoil: func(a *Action) { a.Verb = "DELETE" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := tc.from
			tc.spoil(&a)
			if got, err := DecodeAction(bodyOf(t, a)); !errors.Is(err, ErrInvalidView) || !cmp.Equal(got, Action{}) {
				t.Errorf("%s: %v, %+v", tc.reason, err, got)
			}
		})
	}
	for _, body := range []string{"", "null", "[]", "1", `{"verb":1}`} {
		if _, err := DecodeAction([]byte(body)); !errors.Is(err, ErrInvalidView) {
			t.Errorf("DecodeAction(%q): %v", body, err)
		}
	}
}

func TestResultsOfActionsComeBack(t *testing.T) {
	tests := map[string]ActionResult{
		"done, and nothing to show": {},
		"the object":                {Result: json.RawMessage(`{"kind":"ConfigMap"}`), Warnings: []string{"old"}},
		"one that is too large":     {Omitted: true},
		"a refusal":                 {Refusal: Refuse(CauseRequest, metav1.StatusReasonAlreadyExists, "it exists"), Warnings: []string{"old"}},
		"nobody knows":              {Refusal: Refuse(CauseUnknown, "", "outcome unknown")},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeActionResult(bodyOf(t, want))
			if diff := cmp.Diff(want, got, bytesAtOnce); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestResultsOfActionsThatNoStatusTakesAreRefused(t *testing.T) {
	warnings := bodyOf(t, slices.Repeat([]string{"w"}, maxWarnings+1))
	tests := map[string]struct{ reason, body string }{
		"no JSON":           {reason: "nobody can read it", body: `{`},
		"no object":         {reason: "nobody can read it", body: `[]`},
		"both":              {reason: "one of them is wrong", body: `{"result":{},"refusal":{"cause":"Request","message":"m"}}`},
		"a list":            {reason: "a status takes objects", body: `{"result":[]}`},
		"too large":         {reason: "etcd would not take it", body: `{"result":{"a":"` + strings.Repeat("b", MaxViewBytes) + `"}}`},
		"an odd cause":      {reason: "reasons depend on it", body: `{"refusal":{"cause":"Mood","message":"m"}}`},
		"an empty refusal":  {reason: "somebody has to read it", body: `{"refusal":{}}`},
		"many warnings":     {reason: "each becomes an event", body: fmt.Sprintf(`{"warnings":%s}`, warnings)},
		"a warning's text":  {reason: "messages are bounded", body: `{"warnings":["` + strings.Repeat("w", maxReason+1) + `"]}`},
		"a warning's shape": {reason: "it is a text", body: `{"warnings":[{}]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeActionResult([]byte(tc.body)); !errors.Is(err, ErrInvalidView) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestWarningsFit(t *testing.T) {
	var r ActionResult
	r.AddWarning("")
	r.AddWarning("a" + strings.Repeat("日", maxReason))
	for range 2 * maxWarnings {
		r.AddWarning(strings.Repeat("ä", maxReason))
	}
	if len(r.Warnings) != maxWarnings {
		t.Errorf("%d warnings, want %d", len(r.Warnings), maxWarnings)
	}
	if first := r.Warnings[0]; !strings.HasPrefix(first, "a日") || !strings.HasSuffix(first, "日...") || !utf8.ValidString(first) {
		t.Errorf("the first is %.20q, of %d bytes", first, len(first))
	}
	if _, err := DecodeActionResult(bodyOf(t, r)); err != nil {
		t.Error(err)
	}
}

func FuzzAction(f *testing.F) {
	f.Add(bodyOf(f, goodAction()))
	f.Add(bodyOf(f, goodDeletion()))
	f.Add(bodyOf(f, goodRelease()))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := DecodeAction(body)
		if err != nil {
			if !errors.Is(err, ErrInvalidView) {
				t.Errorf("error is of no kind: %v", err)
			}
			return
		}
		checkAction(t, a)
		if _, err := DecodeAction(bodyOf(t, a)); err != nil {
			t.Errorf("what was accepted does not come back: %v", err)
		}
	})
}

// checkAction fails unless an action is about one thing.
func checkAction(t *testing.T, a Action) {
	t.Helper()
	whole := len(a.Template) > 0
	object := whole != (a.Verb == VerbDelete) && whole == (a.Target.Name == "")
	if a.Release != nil {
		object = !whole && a.Target == Target{} && a.Release.Name != "" && a.Release.Timeout > 0 && len(a.Release.Values) <= MaxActionTemplate
	}
	if a.Requester.User == "" || !object {
		t.Errorf("accepted %+v, release %+v", a, a.Release)
	}
}

func FuzzActionResult(f *testing.F) {
	f.Add([]byte(`{"result":{"kind":"ConfigMap"},"warnings":["old"]}`))
	f.Add([]byte(`{"refusal":{"cause":"Unknown","message":"outcome unknown"},"omitted":true}`))
	f.Add([]byte(`{"refusal":{"cause":"Unknown","message":"m"},"warnings":["a"]}`))
	f.Add([]byte(`{"result":{"a":[1e400]}}`))
	f.Add([]byte(`{"progress":"creating Deployment web"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeActionResult(body)
		if err != nil {
			if !errors.Is(err, ErrInvalidView) {
				t.Errorf("error is of no kind: %v", err)
			}
			return
		}
		checkResult(t, r.Result, r.Refusal, false)
		if len(r.Warnings) > maxWarnings {
			t.Errorf("accepted %d warnings", len(r.Warnings))
		}
		if r.Progress != "" && (len(r.Progress) > maxReason || r.Refusal != nil || len(r.Result) > 0 || r.Omitted) {
			t.Errorf("accepted progress and an end: %+v", r)
		}
		if len(r.Result) > survives {
			return
		}
		if _, err := DecodeActionResult(bodyOf(t, r)); err != nil {
			t.Errorf("what was accepted does not come back: %v", err)
		}
	})
}
