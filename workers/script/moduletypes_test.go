// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// events is a script in the format of service workers.
func events(bindings ...release.Binding) release.Script {
	s := hello(bindings...)
	s.BodyPart = "./worker.js"
	return s
}

func TestServiceWorkerModulesAreBindings(t *testing.T) {
	s := events(
		release.Binding{Name: "ADD", Type: "wasm_module", Part: "ADD"},
		release.Binding{Name: "PAGE", Type: "text_blob", Part: "page.html"},
	)
	s.ModuleTypes = []release.ModuleType{{Name: "ADD", Type: release.TypeWasm}}
	got, err := New(s, stored("page.html", "ADD", "unused.txt", "worker.js"), []string{"KEY"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Main != "" || got.Body != "worker.js" || got.Modules[0].Name != "worker.js" || got.Modules[0].Kind != KindServiceWorker {
		t.Errorf("worker is %+v", got)
	}
	want := []Binding{
		{Name: "ADD", Type: "wasm_module", Part: "ADD"}, {Name: "KEY", Type: "secret_text", Variable: "HELLO_KEY"},
		{Name: "PAGE", Type: "text_blob", Part: "page.html"},
	}
	if diff := cmp.Diff(want, got.Bindings); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
}

func TestModuleTypesOverrideExtensions(t *testing.T) {
	s := hello()
	s.MainModule = "index.js"
	s.ModuleTypes = []release.ModuleType{
		{Name: "a.graphql", Type: release.TypeText}, {Name: "./lib/common.js", Type: release.TypeCommonJS}, {Name: "data.txt", Type: release.TypeData},
		{Name: "entry", Type: release.TypeESModule}, {Name: "b", Type: release.TypeJSON}, {Name: "c", Type: release.TypeWasm},
		{Name: "page", Type: "text/html"}, {Name: "style", Type: "text/css"},
	}
	got, err := New(s, stored("index.js", "a.graphql", "lib/common.js", "data.txt", "entry", "b", "c", "d.txt", "page", "style"), nil)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, m := range got.Modules {
		kinds[m.Name] = m.Kind
	}
	want := map[string]string{
		"index.js": KindESModule, "a.graphql": KindText, "lib/common.js": KindCommonJS, "data.txt": KindData,
		"entry": KindESModule, "b": KindJSON, "c": KindWasm, "d.txt": KindText,
		"page": KindText, "style": KindText,
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestBodyPartMayHaveAnyExtension(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, part, kind string
	}{
		"by its extension": {"it is JavaScript", "worker.js", ""},
		"without one":      {"an upload has names without extensions", "script", ""},
		"by its type":      {"the type of the format", "script", release.TypeCommonJS},
		"as a module":      {"the type of what it was made of", "worker.js", release.TypeESModule},
	} {
		t.Run(name, func(t *testing.T) {
			s := hello()
			s.BodyPart = tc.part
			if tc.kind != "" {
				s.ModuleTypes = []release.ModuleType{{Name: "./" + tc.part, Type: tc.kind}}
			}
			got, err := New(s, stored(tc.part), nil)
			if err != nil || got.Body != tc.part || got.Main != "" || got.Modules[0].Kind != KindServiceWorker {
				t.Errorf("%s: worker is %+v, %v", tc.reason, got, err)
			}
		})
	}
}

// Digests of images and of releases are over this JSON.
func TestWorkerJSONIsStable(t *testing.T) {
	w, err := New(hello(release.Binding{Name: "A", Type: "plain_text", Text: "a"}), stored("index.js", "a.txt"), []string{"KEY"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"hello","envPrefix":"HELLO_","main":"index.js","compatibilityDate":"2026-01-15","modules":[` +
		`{"name":"index.js","kind":"esModule","key":"1234/hello/1/index.js","etag":"etag-index.js","size":7},` +
		`{"name":"a.txt","kind":"text","key":"1234/hello/1/a.txt","etag":"etag-a.txt","size":7}],` +
		`"bindings":[{"name":"A","type":"plain_text","text":"a"},{"name":"KEY","type":"secret_text","variable":"HELLO_KEY"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMixedFormatsAreRefused(t *testing.T) {
	const isNoType = " is no type of a module (there are application/javascript, application/javascript+module, " +
		"application/json, application/octet-stream, application/wasm and text/*)"
	with := func(s release.Script, change func(*release.Script)) release.Script {
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		reason string
		script release.Script
		want   string
	}{
		"both formats": {"a script has one", with(events(), func(s *release.Script) { s.MainModule = "worker.js" }),
			"mainModule: there is a bodyPart, too: a script has one of the two formats"},
		"a body that is not there": {"it would be another one's", with(events(), func(s *release.Script) { s.BodyPart = "other.js" }),
			`bodyPart: there is no module "other.js"`},
		"a body that leads elsewhere": {"no name does", with(events(), func(s *release.Script) { s.BodyPart = "../worker.js" }),
			`bodyPart: "../worker.js" is no name of a module`},
		"a module beside a body": {"nothing could import it", events(),
			"modules[lib.js]: a script in the format of service workers imports no modules"},
		"a module that is a binding": {"the binding says what it takes", events(release.Binding{Name: "LIB", Type: "text_blob", Part: "lib.js"}),
			`bindings[LIB].part: module "lib.js" is esModule, and text_blob takes text, json, data`},
		"CommonJS beside a body": {"nothing could require it", with(events(), func(s *release.Script) {
			s.ModuleTypes = []release.ModuleType{{Name: "lib.js", Type: release.TypeCommonJS}}
		}), "modules[lib.js]: a script in the format of service workers imports no modules"},
		"a body that is no script by its type": {"it was said", with(events(), func(s *release.Script) {
			s.ModuleTypes = []release.ModuleType{{Name: "worker.js", Type: release.TypeText}}
		}), `bodyPart: module "worker.js" is text by its type, and no JavaScript`},
		"the body as a binding": {"it is no text", events(release.Binding{Name: "BODY", Type: "text_blob", Part: "worker.js"}),
			`bindings[BODY].part: module "worker.js" is serviceWorkerScript, and text_blob takes text, json, data`},
		"wasm_module of something else": {"workerd could not compile it", events(release.Binding{Name: "ADD", Type: "wasm_module", Part: "a.txt"}),
			`bindings[ADD].part: module "a.txt" is text, and wasm_module takes wasm`},
		"wasm_module of nothing": {"it has no value", events(release.Binding{Name: "ADD", Type: "wasm_module", Part: "none.wasm"}),
			`bindings[ADD].part: there is no module "none.wasm"`},
		"a main module in CommonJS": {"workerd does not start with it", with(hello(), func(s *release.Script) {
			s.MainModule, s.ModuleTypes = "./lib.js", []release.ModuleType{{Name: "lib.js", Type: release.TypeCommonJS}}
		}), `mainModule: "./lib.js" is CommonJS, and only an ES module handles events`},
		"two types of one module": {"one of them would be a guess", with(hello(), func(s *release.Script) {
			s.ModuleTypes = []release.ModuleType{{Name: "lib.js", Type: release.TypeText}, {Name: "./lib.js", Type: release.TypeESModule}}
		}), `moduleTypes["./lib.js"]: there are two of this module`},
		"a type of what is no name": {"no module has it", with(hello(), func(s *release.Script) {
			s.ModuleTypes = []release.ModuleType{{Name: "../lib.js", Type: release.TypeText}}
		}), `moduleTypes["../lib.js"]: is no name of a module`},
		"WebAssembly as a binding of modules": {"workerd refuses it", hello(release.Binding{Name: "ADD", Type: "wasm_module", Part: "add.wasm"}),
			"bindings[ADD].type: type wasm_module is not supported: workerd has it for scripts without modules alone; import the module by its name"},
		"a type of nothing": {"it is a mistake", with(hello(), func(s *release.Script) {
			s.MainModule, s.ModuleTypes = "lib.js", []release.ModuleType{{Name: "none.txt", Type: release.TypeText}}
		}), `moduleTypes["none.txt"]: there is no such module`},
		"a type that is none": {"those that there are are named", with(hello(), func(s *release.Script) {
			s.MainModule, s.ModuleTypes = "lib.js", []release.ModuleType{{Name: "add.wasm", Type: "image/png"}}
		}), `moduleTypes["add.wasm"]: "image/png"` + isNoType},
		"half a type": {"a type has two parts", with(hello(), func(s *release.Script) {
			s.ModuleTypes = []release.ModuleType{{Name: "add.wasm", Type: "text/"}}
		}), `moduleTypes["add.wasm"]: "text/"` + isNoType},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.script, stored("worker.js", "lib.js", "add.wasm", "a.txt"), nil)
			if got := messageOf(t, err); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
