// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// input has two workers with one of each that there is.
func input() Input {
	return Input{Account: "1234", Workers: []script.Worker{
		{
			Name: "hello", EnvPrefix: "HELLO_", Main: "index.js", CompatibilityDate: "2026-01-15",
			CompatibilityFlags: []string{"brotli_content_encoding", "nodejs_compat"},
			Modules: []script.Module{
				{Name: "index.js", Kind: script.KindESModule, Key: "1234/hello/1/index.js", ETag: "e0", Size: 10},
				{Name: "add.wasm", Kind: script.KindWasm, Key: "1234/hello/1/add.wasm", ETag: "e1", Size: 11},
				{Name: "lib/a.json", Kind: script.KindJSON, Key: "1234/hello/1/lib/a.json", ETag: "e2", Size: 12},
				{Name: "logo.png", Kind: script.KindData, Key: "1234/hello/1/logo.png", ETag: "e3", Size: 13},
				{Name: "page.html", Kind: script.KindText, Key: "1234/hello/1/page.html", ETag: "e4", Size: 14},
			},
			Bindings: []script.Binding{
				{Name: "GREETING", Type: release.BindingPlainText, Text: "say \"hello\",\\ \x00 \x7f é\r\n); const x = 1;"},
				{Name: "LOGO", Type: release.BindingDataBlob, Part: "logo.png"},
				{Name: "OBJ", Type: release.BindingJSON, JSON: json.RawMessage(`{"a":[1,"\u003c\""]}`)},
				{Name: "PAGE", Type: release.BindingTextBlob, Part: "page.html"},
				{Name: "TOKEN", Type: release.BindingSecretText, Variable: "HELLO_TOKEN"},
			},
		},
		{
			Name: "other", EnvPrefix: "OTHER_", Main: "hello.mjs", CompatibilityDate: "2023-02-28",
			Modules: []script.Module{{Name: "hello.mjs", Kind: script.KindESModule, Key: "1234/other/1/hello.mjs", ETag: "e5", Size: 15}},
		},
	}}
}

func TestDigestCoversImageContent(t *testing.T) {
	tests := map[string]struct {
		reason string
		change func(*Input)
		same   bool
	}{
		"nothing": {reason: "the same input is the same image", change: func(*Input) {}, same: true},
		"another key": {
			reason: "where a module is stored is not in the image", change: func(in *Input) { in.Workers[0].Modules[0].Key = "1234/hello/2/index.js" }, same: true,
		},
		"read from JSON": {
			reason: "a Job computes what the operator did", change: func(in *Input) {
				raw, _ := json.Marshal(in)
				*in = Input{}
				_ = json.Unmarshal(raw, in)
			}, same: true,
		},
		"empty lists": {
			reason: "an empty list and none are written alike",
			change: func(in *Input) {
				in.Workers[1].Bindings, in.Workers[1].CompatibilityFlags = []script.Binding{}, []string{}
			}, same: true,
		},
		"another account":  {reason: "accounts share no image", change: func(in *Input) { in.Account = "5678" }},
		"another content":  {reason: "another content has another ETag", change: func(in *Input) { in.Workers[0].Modules[0].ETag = "e9" }},
		"another size":     {reason: "as above", change: func(in *Input) { in.Workers[0].Modules[0].Size = 9 }},
		"another module":   {reason: "imports name it", change: func(in *Input) { in.Workers[0].Modules[1].Name = "sub.wasm" }},
		"another kind":     {reason: "an import of it is something else", change: func(in *Input) { in.Workers[0].Modules[4].Kind = script.KindData }},
		"another date":     {reason: "it changes how the script runs", change: func(in *Input) { in.Workers[0].CompatibilityDate = "2026-01-16" }},
		"another flag":     {reason: "as above", change: func(in *Input) { in.Workers[0].CompatibilityFlags[0] = "no_" }},
		"another text":     {reason: "it is in the configuration", change: func(in *Input) { in.Workers[0].Bindings[0].Text = "" }},
		"another JSON":     {reason: "as above", change: func(in *Input) { in.Workers[0].Bindings[2].JSON = json.RawMessage(`1`) }},
		"another part":     {reason: "as above", change: func(in *Input) { in.Workers[0].Bindings[3].Part = "lib/a.json" }},
		"another variable": {reason: "as above", change: func(in *Input) { in.Workers[0].Bindings[4].Variable = "HELLO_OTHER" }},
		"another order": {
			reason: "it decides the ports", change: func(in *Input) { in.Workers[0], in.Workers[1] = in.Workers[1], in.Workers[0] },
		},
		"one worker less": {reason: "its port is gone", change: func(in *Input) { in.Workers = in.Workers[:1] }},
	}
	want := input().Digest()
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(want) {
		t.Errorf("Digest(): got %q", want)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := input()
			tc.change(&in)
			if got := in.Digest(); (got == want) != tc.same {
				t.Errorf("%s: Digest(): got %s, and without the change %s", tc.reason, got, want)
			}
		})
	}
}

func TestDigestDoesNotModifyInput(t *testing.T) {
	in := input()
	in.Digest()
	if diff := cmp.Diff(input(), in); diff != "" {
		t.Errorf("keys are read after the digest (-before +after):\n%s", diff)
	}
}

// Images that exist are named by the digest of their input. If this test fails, every image
// of every account is built again; so it is if format changes, which is what format is for.
func TestDigestMatchesGoldenValue(t *testing.T) {
	const want = "0d0e603ac1bd2743595e7ab2ee319b07e762a72be1d512b6e614003c7298ac70"
	if got := input().Digest(); got != want {
		t.Errorf("Digest(): got %s, want %s", got, want)
	}
}
