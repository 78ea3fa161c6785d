// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func goodRelease() Action {
	return Action{
		Requester: Requester{User: "alice"}, Verb: VerbCreate, MaxBytes: 512 << 10,
		Release: &Release{Name: "web", ChartURL: "https://charts.example.com/web-1.0.0.tgz", Values: []byte("a: b"), Timeout: 300},
	}
}

func TestActionsOfHelmComeBack(t *testing.T) {
	all := goodRelease()
	all.Verb, all.Secrets = VerbUpdate, SecretsShown
	all.Release = &Release{
		Name: "web", Namespace: "shop", ChartURL: "https://charts.example.com", ChartName: "web", Version: "^1", InsecureSkipVerify: true,
		Values: bytes.Repeat([]byte{0xff}, MaxActionTemplate), ValuesURL: "https://charts.example.com/" + strings.Repeat("v", 4000), Wait: true, Timeout: MaxReleaseTimeout,
	}
	deletion := goodRelease()
	deletion.Verb, deletion.Release = VerbDelete, &Release{Name: "web", Timeout: 1}
	for name, want := range map[string]Action{"an installation": goodRelease(), "all there is to say": all, "an uninstallation": deletion} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeAction(bodyOf(t, want))
			if diff := cmp.Diff(want, got, bytesAtOnce); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestActionsOfHelmThatNoHubSendsAreRefused(t *testing.T) {
	tests := map[string]struct {
		reason string
		spoil  func(*Action)
	}{
		"no verb":                {reason: "nothing would be done, and said to be", spoil: func(a *Action) { a.Verb = "" }},
		"a verb of Helm":         {reason: "verbs are those of the hub", spoil: func(a *Action) { a.Verb = "Rollback" }},
		"an object, too":         {reason: "which of the two is meant?", spoil: func(a *Action) { a.Template = json.RawMessage(`{}`) }},
		"a target, too":          {reason: "which of the two is meant?", spoil: func(a *Action) { a.Target.Name = "web" }},
		"a namespace beside":     {reason: "the release has its own", spoil: func(a *Action) { a.Target.Namespace = "shop" }},
		"no name":                {reason: "it could not be found", spoil: func(a *Action) { a.Release.Name = "" }},
		"a long name":            {reason: "names are bounded", spoil: func(a *Action) { a.Release.Name = strings.Repeat("n", maxName+1) }},
		"a long namespace":       {reason: "names are bounded", spoil: func(a *Action) { a.Release.Namespace = strings.Repeat("n", maxName+1) }},
		"a long chart":           {reason: "names are bounded", spoil: func(a *Action) { a.Release.ChartName = strings.Repeat("n", maxName+1) }},
		"a long version":         {reason: "names are bounded", spoil: func(a *Action) { a.Release.Version = strings.Repeat("1", maxName+1) }},
		"a long URL":             {reason: "URLs are bounded", spoil: func(a *Action) { a.Release.ChartURL = strings.Repeat("u", maxURL+1) }},
		"a long URL of values":   {reason: "URLs are bounded", spoil: func(a *Action) { a.Release.ValuesURL = strings.Repeat("u", maxURL+1) }},
		"large values":           {reason: "values are bounded", spoil: func(a *Action) { a.Release.Values = make([]byte, MaxActionTemplate+1) }},
		"no time":                {reason: "nothing could be done", spoil: func(a *Action) { a.Release.Timeout = 0 }},
		"time before now":        {reason: "nothing could be done", spoil: func(a *Action) { a.Release.Timeout = -1 }},
		"more time than an hour": {reason: "it would hold up others", spoil: func(a *Action) { a.Release.Timeout = MaxReleaseTimeout + 1 }},
		"of nobody":              {reason: "nobody would be impersonated", spoil: func(a *Action) { a.Requester.User = "" }},
		"of no bytes":            {reason: "nothing would fit", spoil: func(a *Action) { a.MaxBytes = 0 }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := goodRelease()
			tc.spoil(&a)
			if got, err := DecodeAction(bodyOf(t, a)); !errors.Is(err, ErrInvalidView) || !cmp.Equal(got, Action{}) {
				t.Errorf("%s: %v, %+v", tc.reason, err, got)
			}
		})
	}
}

func TestViewsOfReleasesThatNoHubSendsAreRefused(t *testing.T) {
	tests := map[string]struct {
		reason string
		spoil  func(*View)
	}{
		"a resource":          {reason: "which of the two is meant?", spoil: func(v *View) { v.Target.Resource = "secrets" }},
		"a kind":              {reason: "which of the two is meant?", spoil: func(v *View) { v.Target.Kind = "Secret" }},
		"a group":             {reason: "Helm's records have none", spoil: func(v *View) { v.Target.Group = "apps" }},
		"a table":             {reason: "the rows would be Secrets", spoil: func(v *View) { v.Table = true }},
		"a field":             {reason: "the fields would be those of Secrets", spoil: func(v *View) { v.FieldSelector = "type=a" }},
		"no label selector":   {reason: "the API server would refuse it", spoil: func(v *View) { v.LabelSelector = "a in" }},
		"a name that selects": {reason: "it becomes a part of a selector", spoil: func(v *View) { v.Target.Name = "web,owner in (x)" }},
		"a name of two":       {reason: "it is the value of a label", spoil: func(v *View) { v.Target.Name = "a/b" }},
		"a long name":         {reason: "it is the value of a label", spoil: func(v *View) { v.Target.Name = strings.Repeat("n", 64) }},
		"a long namespace":    {reason: "names are bounded", spoil: func(v *View) { v.Target.Namespace = strings.Repeat("n", maxName+1) }},
		"an odd policy":       {reason: "a later one may hide more", spoil: func(v *View) { v.Secrets = "Sometimes" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := View{Requester: Requester{User: "u"}, Releases: true, Target: Target{Namespace: "shop", Name: "web"}, MaxBytes: 1}
			tc.spoil(&v)
			if got, err := DecodeView(bodyOf(t, v)); !errors.Is(err, ErrInvalidView) || !cmp.Equal(got, View{}) {
				t.Errorf("%s: %v, %+v", tc.reason, err, got)
			}
		})
	}
}

// An action that is done, and has nothing to show, is an empty result: progress is none.
func TestProgressIsNeverTheEnd(t *testing.T) {
	tests := map[string]struct{ reason, what, want string }{
		"a short one":          {reason: "it is said as it is", what: "creating Deployment web", want: "creating Deployment web"},
		"the longest":          {reason: "it fits", what: strings.Repeat("m", maxReason), want: strings.Repeat("m", maxReason)},
		"one that is too long": {reason: "its beginning says most", what: strings.Repeat("m", 2*maxReason), want: strings.Repeat("m", maxReason-3) + "..."},
		"a rune that is cut":   {reason: "half of it is no text", what: strings.Repeat("ä", maxReason), want: strings.Repeat("ä", (maxReason-3)/2) + "..."},
		"what is no text":      {reason: "something is being done", what: "\xff", want: noProgress},
		"nothing":              {reason: "something is being done", want: noProgress},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeActionResult(bodyOf(t, Progressing(tc.what)))
			if diff := cmp.Diff(ActionResult{Progress: tc.want}, got); diff != "" || err != nil || !utf8.ValidString(got.Progress) {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestProgressWithAnEndIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"a result":         `{"progress":"a","result":{}}`,
		"a refusal":        `{"progress":"a","refusal":{"cause":"Request","message":"m"}}`,
		"nothing to show":  `{"progress":"a","omitted":true}`,
		"a warning":        `{"progress":"a","warnings":["old"]}`,
		"more than a word": `{"progress":"` + strings.Repeat("a", maxReason+1) + `"}`,
		"what is no text":  `{"progress":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := DecodeActionResult([]byte(body)); !errors.Is(err, ErrInvalidView) || !cmp.Equal(got, ActionResult{}) {
				t.Errorf("%v, %+v", err, got)
			}
		})
	}
}
