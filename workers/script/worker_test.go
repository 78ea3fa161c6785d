// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// stored are objects of these names.
func stored(names ...string) []release.Module {
	modules := make([]release.Module, 0, len(names))
	for _, name := range names {
		modules = append(modules, release.Module{Name: name, Key: "1234/hello/1/" + name, ETag: "etag-" + name, Size: 7})
	}
	return modules
}

func value(raw string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(raw)} }

// hello is a script with these bindings.
func hello(bindings ...release.Binding) release.Script {
	return release.Script{ScriptName: "hello", CompatibilityDate: "01/15/2026", Bindings: bindings}
}

func TestNewFillsWorker(t *testing.T) {
	s := hello(
		release.Binding{Name: "TOKEN", Type: "secret_text"},
		release.Binding{Name: "dataBase", Type: "secret_text", Key: "DATABASE_URL"},
		release.Binding{Name: "GREETING", Type: "plain_text", Text: "hello\x00\n"},
		release.Binding{Name: "$page", Type: "text_blob", Part: "./page.html"},
		release.Binding{Name: "BLOB", Type: "data_blob", Part: "logo.png"},
		release.Binding{Name: "OBJ", Type: "json", JSON: value(`{ "b": "<é>", "a": [1, 2.50] }`)},
		release.Binding{Name: "EMPTY", Type: "plain_text"},
	)
	s.CompatibilityFlags = []string{"nodejs_compat", "brotli_content_encoding", "nodejs_compat"}
	modules := stored("page.html", "./lib//add.wasm", "index.js", "logo.png", "index.js.map", "lib/", "a.mjs")
	got, err := New(s, modules, []string{"TOKEN", "DATABASE_URL", "OTHER", "TOKEN"})
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	module := func(name, kind, stored string) Module {
		return Module{Name: name, Kind: kind, Key: "1234/hello/1/" + stored, ETag: "etag-" + stored, Size: 7}
	}
	want := Worker{
		Name: "hello", EnvPrefix: "HELLO_", Main: "index.js", CompatibilityDate: "2026-01-15",
		CompatibilityFlags: []string{"brotli_content_encoding", "nodejs_compat"},
		Modules: []Module{
			module("index.js", KindESModule, "index.js"), module("a.mjs", KindESModule, "a.mjs"), module("lib/add.wasm", KindWasm, "./lib//add.wasm"),
			module("logo.png", KindData, "logo.png"), module("page.html", KindText, "page.html"),
		},
		Bindings: []Binding{
			{Name: "$page", Type: "text_blob", Part: "page.html"},
			{Name: "BLOB", Type: "data_blob", Part: "logo.png"},
			{Name: "EMPTY", Type: "plain_text"},
			{Name: "GREETING", Type: "plain_text", Text: "hello\x00\n"},
			{Name: "OBJ", Type: "json", JSON: json.RawMessage(`{"b":"\u003cé\u003e","a":[1,2.50]}`)},
			{Name: "OTHER", Type: "secret_text", Variable: "HELLO_OTHER"},
			{Name: "TOKEN", Type: "secret_text", Variable: "HELLO_TOKEN"},
			{Name: "dataBase", Type: "secret_text", Variable: "HELLO_DATABASE_URL"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("New() (-want +got):\n%s", diff)
	}
}

func TestWorkerJSONRoundTrip(t *testing.T) {
	w, err := New(hello(release.Binding{Name: "J", Type: "json", JSON: value("{\"a\": \"<&\u2028>\"}")}), stored("index.js"), nil)
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	raw, err := json.Marshal(w)
	if err != nil {
		t.Fatalf("Marshal(): %v", err)
	}
	var again Worker
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatalf("Unmarshal(): %v", err)
	}
	if diff := cmp.Diff(w, again); diff != "" {
		t.Errorf("a Job reads what the operator wrote (-written +read):\n%s", diff)
	}
}

func TestNewIgnoresInputOrder(t *testing.T) {
	s := hello(
		release.Binding{Name: "A", Type: "plain_text", Text: "a"}, release.Binding{Name: "B", Type: "secret_text", Key: "K"},
		release.Binding{Name: "C", Type: "text_blob", Part: "c.txt"},
	)
	s.CompatibilityFlags = []string{"a", "b", "c"}
	modules, keys := stored("index.js", "a.js", "b.js", "c.txt"), []string{"K", "L", "M"}
	want, err := New(s, modules, keys)
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	for range 20 {
		rand.Shuffle(len(modules), func(i, j int) { modules[i], modules[j] = modules[j], modules[i] })
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		rand.Shuffle(3, func(i, j int) { s.Bindings[i], s.Bindings[j] = s.Bindings[j], s.Bindings[i] })
		rand.Shuffle(3, func(i, j int) {
			s.CompatibilityFlags[i], s.CompatibilityFlags[j] = s.CompatibilityFlags[j], s.CompatibilityFlags[i]
		})
		got, err := New(s, modules, keys)
		if err != nil {
			t.Fatalf("New(): %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the same script is another worker (-want +got):\n%s", diff)
		}
	}
}

func TestMainModuleIsResolved(t *testing.T) {
	many := []string{}
	for i := range 15 {
		many = append(many, fmt.Sprintf("m%02d.js", i))
	}
	tests := map[string]struct {
		reason string
		named  string
		stored []string
		want   string
		err    string
	}{
		"the only one":              {reason: "there is no other", stored: []string{"add.wasm", "hello.mjs"}, want: "hello.mjs"},
		"the only one, in capitals": {reason: "an extension has no case", stored: []string{"HELLO.JS"}, want: "HELLO.JS"},
		"index.js before main.js":   {reason: "it is the likeliest", stored: []string{"main.js", "index.js"}, want: "index.js"},
		"worker.mjs before main.js": {
			reason: "as above", stored: []string{"main.js", "worker.mjs", "a.js"}, want: "worker.mjs",
		},
		"the one that is named":       {reason: "it was said", named: "b.js", stored: []string{"index.js", "b.js"}, want: "b.js"},
		"named as an import names it": {reason: "workerd resolves it to the same", named: "./lib/b.js", stored: []string{"index.js", "lib/b.js"}, want: "lib/b.js"},
		"one below is not found": {
			reason: "lib/index.js is a library's", stored: []string{"lib/index.js", "b.js"},
			err: "mainModule: is empty, and there are several JavaScript modules: b.js, lib/index.js",
		},
		"none of several": {
			reason: "the first by name would be a guess", stored: []string{"b.js", "a.js"},
			err: "mainModule: is empty, and there are several JavaScript modules: a.js, b.js",
		},
		"none of many": {
			reason: "a message stays short", stored: many,
			err: "mainModule: is empty, and there are several JavaScript modules: m00.js, m01.js, m02.js, m03.js, m04.js, m05.js, m06.js, m07.js, m08.js, m09.js and 5 more",
		},
		"no JavaScript": {
			reason: "something must handle events", stored: []string{"add.wasm"},
			err: "mainModule: there is no JavaScript module, which ends in .js or .mjs",
		},
		"named and not there": {
			reason: "another one would be a guess", named: "b.js", stored: []string{"index.js"},
			err: `mainModule: "b.js" is none of the JavaScript modules: index.js`,
		},
		"named and no JavaScript": {
			reason: "workerd cannot run it", named: "a.txt", stored: []string{"a.txt"},
			err: `mainModule: "a.txt" is none of the JavaScript modules: there is none`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := hello()
			s.MainModule = tc.named
			got, err := New(s, stored(tc.stored...), nil)
			if message := messageOf(t, err); message != tc.err || got.Main != tc.want {
				t.Fatalf("%s: New(): got %q, %q, want %q, %q", tc.reason, got.Main, message, tc.want, tc.err)
			}
			if err == nil && got.Modules[0].Name != got.Main {
				t.Errorf("%s: the first module is %q", tc.reason, got.Modules[0].Name)
			}
		})
	}
}

// messageOf returns what an error of New says; it must be one of the account's.
func messageOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*InvalidError](err); !ok {
		t.Errorf("%v: is %T", err, err)
	}
	return err.Error()
}

func TestKindFollowsExtension(t *testing.T) {
	tests := map[string]struct{ reason, want string }{
		"a.js": {"JavaScript", KindESModule}, "a.mjs": {"JavaScript", KindESModule}, "a.wasm": {"WebAssembly", KindWasm},
		"a.txt": {"text", KindText}, "a.html": {"text", KindText}, "a.css": {"text", KindText}, "a.md": {"text", KindText}, "a.sql": {"text", KindText},
		"a.json": {"JSON", KindJSON}, "a.png": {"no other kind takes any bytes", KindData}, "a": {"as above", KindData}, "js/a": {"a folder has no kind", KindData},
		"a.js.bin": {"the last extension counts", KindData},
	}
	for name, tc := range tests {
		if got := kindOf(name); got != tc.want {
			t.Errorf("%s: kindOf(%s): got %s, want %s", tc.reason, name, got, tc.want)
		}
	}
}

// secretValue stands where a value of a secret may be by mistake.
const secretValue = "hunter2"

// A refusal is a script that New refuses, and what it says.
type refusal struct {
	reason  string
	script  release.Script
	modules []release.Module
	keys    []string
	want    string
}

func TestNewRejectsInvalidScripts(t *testing.T) {
	index := stored("index.js", "add.wasm", "a.txt")
	for about, cases := range map[string]map[string]refusal{
		"script": refusedScripts(index), "modules": refusedModules(), "bindings": refusedBindings(index), "sources": refusedSources(index),
	} {
		for name, tc := range cases {
			t.Run(about+"/"+name, func(t *testing.T) {
				_, err := New(tc.script, tc.modules, tc.keys)
				message := messageOf(t, err)
				if diff := cmp.Diff(tc.want, message); diff != "" {
					t.Errorf("%s: New() (-want +got):\n%s", tc.reason, diff)
				}
				if strings.Contains(message, secretValue) {
					t.Errorf("%s: the message has a secret: %s", tc.reason, message)
				}
			})
		}
	}
}

func refusedScripts(index []release.Module) map[string]refusal {
	with := func(change func(*release.Script)) release.Script {
		s := hello()
		change(&s)
		return s
	}
	return map[string]refusal{
		"a name in capitals": {
			reason: "it is a path and a name of a Service", script: with(func(s *release.Script) { s.ScriptName = "Hello" }), modules: index,
			want: `scriptName: "Hello" is not 54 lower-case letters, digits, - and _ at most, with a letter or digit at both ends`,
		},
		"a long name": {
			reason: "worker-<name> is a name of a Service", script: with(func(s *release.Script) { s.ScriptName = strings.Repeat("a", 55) }), modules: index,
			want: `scriptName: "` + strings.Repeat("a", 55) + `" is not 54 lower-case letters, digits, - and _ at most, with a letter or digit at both ends`,
		},
		"no date": {
			reason: "workerd needs one", script: with(func(s *release.Script) { s.CompatibilityDate = "" }), modules: index,
			want: `compatibilityDate: "" is no date as in 2026-01-15 or 01/15/2026`,
		},
		"an empty flag": {
			reason: "workerd knows none", script: with(func(s *release.Script) { s.CompatibilityFlags = []string{""} }), modules: index,
			want: `compatibilityFlags: "" is no flag`,
		},
		"a flag of two lines": {
			reason: "no flag has any", script: with(func(s *release.Script) { s.CompatibilityFlags = []string{"a\nb"} }), modules: index,
			want: `compatibilityFlags: "a\nb" is no flag`,
		},
	}
}

func refusedModules() map[string]refusal {
	return map[string]refusal{
		"no modules": {reason: "there is nothing to run", script: hello(), want: "modules: nothing that is stored at scriptUrls is a module"},
		"maps alone": {
			reason: "they are no modules", script: hello(), modules: stored("index.js.map"), want: "modules: nothing that is stored at scriptUrls is a module",
		},
		"two modules of one name": {
			reason: "several addresses may hold the same", script: hello(), modules: stored("index.js", "index.js"), want: "modules[index.js]: there are two of this name",
		},
		"two spellings of one name": {
			reason: "workerd rejects them", script: hello(), modules: stored("index.js", "./index.js"), want: "modules[index.js]: there are two of this name",
		},
		"an absolute name": {reason: "it is no part of a script", script: hello(), modules: stored("/index.js"), want: `modules: the name "/index.js" leads out of the script`},
		"a name that leads up": {
			reason: "as above", script: hello(), modules: stored("lib/../index.js"), want: `modules: the name "lib/../index.js" leads out of the script`,
		},
		"a name of two lines": {
			reason: "it is written into a file", script: hello(), modules: stored("a\n.js"), want: `modules: the name "a\n.js" has characters that are not text`,
		},
		"a NUL in a name":     {reason: "as above", script: hello(), modules: stored("a\x00.js"), want: `modules: the name "a\x00.js" has characters that are not text`},
		"a name not in UTF-8": {reason: "JSON would change it", script: hello(), modules: stored("\xff.js"), want: `modules: the name "\xff.js" has characters that are not text`},
		"an empty name":       {reason: "the address was that of an object", script: hello(), modules: stored(""), want: `modules: the name "" is empty`},
		"a dot":               {reason: "it is a folder", script: hello(), modules: stored("."), want: `modules: the name "." is empty`},
		"no key": {
			reason: "nothing could be read", script: hello(), modules: []release.Module{{Name: "a.js", ETag: "e"}}, want: `modules[a.js].key: "" is no key of an object`,
		},
		"no ETag": {
			reason: "any content would be the same image", script: hello(), modules: []release.Module{{Name: "a.js", Key: "k"}},
			want: `modules[a.js].etag: "" tells no content from another`,
		},
		"a negative size": {
			reason: "nothing has one", script: hello(), modules: []release.Module{{Name: "a.js", Key: "k", ETag: "e", Size: -1}}, want: "modules[a.js].size: is negative",
		},
	}
}

func refusedBindings(index []release.Module) map[string]refusal {
	return map[string]refusal{
		"a binding that JavaScript cannot name": {
			reason: "env.my-text is a subtraction", script: hello(release.Binding{Name: "my-text", Type: "plain_text"}), modules: index,
			want: `bindings["my-text"].name: is no name that JavaScript can read: letters, digits, _ and $, and no digit first`,
		},
		"a binding of two lines": {
			reason: "$ means the end of the text", script: hello(release.Binding{Name: "A\n", Type: "plain_text"}), modules: index,
			want: `bindings["A\n"].name: is no name that JavaScript can read: letters, digits, _ and $, and no digit first`,
		},
		"__proto__": {
			reason: "workerd sets the prototype, and the script finds nothing", script: hello(release.Binding{Name: "__proto__", Type: "plain_text"}), modules: index,
			want: `bindings["__proto__"].name: is no name that JavaScript can read: letters, digits, _ and $, and no digit first`,
		},
		"two bindings of one name": {
			reason: "one would win", script: hello(release.Binding{Name: "A", Type: "plain_text"}, release.Binding{Name: "A", Type: "plain_text"}), modules: index,
			want: "bindings[A].name: there are two of this name",
		},
		"KV": {
			reason: "there is no service behind it", script: hello(release.Binding{Name: "KV", Type: "kv_namespace"}), modules: index,
			want: "bindings[KV].type: type kv_namespace is not supported",
		},
		"a type that nobody knows": {
			reason: "the message helps with spelling", script: hello(release.Binding{Name: "A", Type: "text"}), modules: index,
			want: `bindings[A].type: unknown type "text" (there are data_blob, json, plain_text, secret_text, text_blob, wasm_module)`,
		},
		"wasm_module": {
			reason: "workerd does not take it with modules", script: hello(release.Binding{Name: "A", Type: "wasm_module", Part: "add.wasm"}), modules: index,
			want: "bindings[A].type: type wasm_module is not supported: workerd has it for scripts without modules alone; import the module by its name",
		},
		"text that is not UTF-8": {
			reason: "JSON would change it", script: hello(release.Binding{Name: "A", Type: "plain_text", Text: "\xff"}), modules: index, want: "bindings[A].text: is not UTF-8",
		},
		"no JSON": {reason: "null is a value, nothing is not", script: hello(release.Binding{Name: "A", Type: "json"}), modules: index, want: "bindings[A].json: there is none"},
		"half a JSON": {
			reason: "the script could not be loaded", script: hello(release.Binding{Name: "A", Type: "json", JSON: value(`{"a":"` + secretValue)}), modules: index, want: "bindings[A].json: is not JSON",
		},
		"JSON that is not UTF-8": {
			reason: "as above", script: hello(release.Binding{Name: "A", Type: "json", JSON: value("\"\xff\"")}), modules: index, want: "bindings[A].json: is not JSON",
		},
		"a field of another type": {
			reason: "it would have no effect", script: hello(release.Binding{Name: "A", Type: "plain_text", JSON: value("1")}), modules: index, want: "bindings[A].json: type plain_text takes none",
		},
		"a secret in the spec": {
			reason: "everybody reads it there", script: hello(release.Binding{Name: "A", Type: "secret_text", Text: secretValue}), modules: index, keys: []string{"A"},
			want: "bindings[A].text: the value of a secret is in the Secret",
		},
	}
}

// refusedSources are bindings whose value is elsewhere: in the Secret or in a module.
func refusedSources(index []release.Module) map[string]refusal {
	return map[string]refusal{
		"a key that the Secret has not": {
			reason: "the script would find null", script: hello(release.Binding{Name: "A", Type: "secret_text", Key: "B"}), modules: index, keys: []string{"A"},
			want: `bindings[A].key: the Secret of secretRef has no key "B"`,
		},
		"a key that is no variable": {
			reason: "no pod would have it", script: hello(), modules: index, keys: []string{"tls.crt"}, want: `secretRef: the key "tls.crt" is no name of an environment variable`,
		},
		"a key of two lines": {
			reason: "$ means the end of the text", script: hello(), modules: index, keys: []string{"A\n"}, want: `secretRef: the key "A\n" is no name of an environment variable`,
		},
		"a key that has the name of a binding": {
			reason: "one would win", script: hello(release.Binding{Name: "A", Type: "plain_text"}), modules: index, keys: []string{"A"},
			want: "bindings[A].name: a key of the Secret has this name, too",
		},
		"a key that has the name of another key's binding": {
			reason: "as above", script: hello(release.Binding{Name: "A", Type: "secret_text", Key: "B"}), modules: index, keys: []string{"A", "B"},
			want: "bindings[A].name: a key of the Secret has this name, too",
		},
		"a key that no script can read": {
			reason: "as a binding of this name", script: hello(), modules: index, keys: []string{"__proto__"},
			want: `bindings["__proto__"].name: is no name that JavaScript can read: letters, digits, _ and $, and no digit first`,
		},
		"a part that is not stored": {
			reason: "there is no content", script: hello(release.Binding{Name: "A", Type: "text_blob", Part: "b.txt"}), modules: index, want: `bindings[A].part: there is no module "b.txt"`,
		},
		"no part": {
			reason: "as above", script: hello(release.Binding{Name: "A", Type: "data_blob"}), modules: index, want: `bindings[A].part: "" is no name of a module`,
		},
		"a part of another kind": {
			reason: "WebAssembly is no text", script: hello(release.Binding{Name: "A", Type: "text_blob", Part: "add.wasm"}), modules: index,
			want: `bindings[A].part: module "add.wasm" is wasm, and text_blob takes text, json, data`,
		},
	}
}

func TestSecretKeyMayHaveSeveralBindings(t *testing.T) {
	w, err := New(hello(
		release.Binding{Name: "A", Type: "secret_text", Key: "B"}, release.Binding{Name: "B", Type: "secret_text", Key: "A"}, release.Binding{Name: "C", Type: "secret_text", Key: "A"},
	), stored("index.js"), []string{"A", "B"})
	if err != nil {
		t.Fatalf("New(): %v", err)
	}
	want := []Binding{
		{Name: "A", Type: "secret_text", Variable: "HELLO_B"}, {Name: "B", Type: "secret_text", Variable: "HELLO_A"}, {Name: "C", Type: "secret_text", Variable: "HELLO_A"},
	}
	if diff := cmp.Diff(want, w.Bindings); diff != "" {
		t.Errorf("names of bindings are the script's, keys are the Secret's (-want +got):\n%s", diff)
	}
}
