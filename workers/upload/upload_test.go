// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime/multipart"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

var limits = Limits{MaxModules: 4, MaxBytes: 1 << 10}

// memory is one that counts. Without a limit there is always more.
type memory struct{ held, peak, most int64 }

func (m *memory) Grow(n int64) error {
	if m.most > 0 && m.held+n > m.most {
		return errFull
	}
	m.held += n
	m.peak = max(m.peak, m.held)
	return nil
}

func (m *memory) Shrink(n int64) { m.held -= n }

var errFull = errors.New("others have it all")

// part is one of a form.
type part struct{ name, kind, content string }

// form writes parts as wrangler does.
func form(t testing.TB, parts ...part) (contentType string, body []byte) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	if err := w.SetBoundary("----formdata-undici-0123456789"); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		// Quoted as it is: wrangler escapes quotation marks and line breaks alone.
		header := map[string][]string{"Content-Disposition": {`form-data; name="` + p.name + `"; filename="` + p.name + `"`}}
		if p.name == metadataPart {
			header["Content-Disposition"] = []string{`form-data; name="metadata"`}
		}
		if p.kind != "" {
			header["Content-Type"] = []string{p.kind}
		}
		to, err := w.CreatePart(header)
		if err == nil {
			_, err = io.WriteString(to, p.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), out.Bytes()
}

// settings is the part of the metadata; module is the one that it names.
func settings(metadata string) part { return part{metadataPart, "", metadata} }

var module = part{"index.js", release.TypeESModule, "export default {};\n"}

// with is metadata of module and more fields.
func with(fields string) part {
	return settings(`{"main_module":"index.js","compatibility_date":"2026-01-15"` + fields + `}`)
}

// recorded returns what wrangler 4.164.0 wrote with deploy --dry-run --outfile.
func recorded(t testing.TB, name string) (contentType string, body []byte) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	boundary, _, _ := strings.Cut(string(body[2:]), "\r\n")
	return "multipart/form-data; boundary=" + boundary, body
}

func TestReadParsesWranglerUploads(t *testing.T) {
	lists := func(texts ...string) []string { return texts }
	for name, test := range map[string]struct {
		reason string
		want   Upload
		files  []string
	}{
		"modules.form": {
			reason: "imports have names of their own, and the source map is left out",
			want: Upload{
				Script: release.Script{
					MainModule: "index.js", CompatibilityDate: "2026-01-15",
					Bindings: []release.Binding{
						{Name: "GREETING", Type: "plain_text", Text: "hello"},
						{Name: "LIMITS", Type: "json", JSON: &apiextensionsv1.JSON{Raw: []byte(`{"most":7}`)}},
					},
				},
				Keep: lists("secret_text", "secret_key"),
			},
			files: lists("02f40f22fa85525f0e936430317ceb25f98434f4-motto.txt text/plain",
				"c6006650182737e2b09bada7fc0774812b802917-add.wasm application/wasm", "index.js application/javascript+module"),
		},
		"serviceworker.form": {
			reason: "parts of bindings have names without an extension, and come before the metadata",
			want: Upload{
				Script: release.Script{
					BodyPart: "index.js", CompatibilityDate: "2026-01-15",
					Bindings:    []release.Binding{{Name: "ADD", Type: "wasm_module", Part: "ADD"}, {Name: "MOTTO", Type: "text_blob", Part: "MOTTO"}},
					ModuleTypes: []release.ModuleType{{Name: "ADD", Type: release.TypeWasm}, {Name: "MOTTO", Type: release.TypeText}},
				},
				Keep: lists("secret_text", "secret_key"),
			},
			files: lists("ADD application/wasm", "MOTTO text/plain", "index.js application/javascript"),
		},
		"secrets.form": {
			reason: "--secrets-file, --message, --tag, keep_vars and a flag",
			want: Upload{
				Script: release.Script{
					MainModule: "index.js", CompatibilityDate: "2026-01-15", CompatibilityFlags: lists("brotli_content_encoding"),
					Bindings: []release.Binding{
						{Name: "GREETING", Type: "plain_text", Text: "hello"},
						{Name: "OBJ", Type: "json", JSON: &apiextensionsv1.JSON{Raw: []byte(`{"a":1,"b":["é",2.5]}`)}},
					},
				},
				Secrets: map[string]string{"API_KEY": "not-a-real-key"}, Message: "first", Tag: "v1",
				Keep: lists("plain_text", "json", "secret_text", "secret_key"),
			},
			files: lists("cf195d1db58b8038652dfae4ee76aaf7ecdc5869-motto.txt text/plain",
				"f2f415504deccd0e0a3a17df30fb123b0f773ce2-add.wasm application/wasm", "index.js application/javascript+module"),
		},
		"nobundle.form": {
			reason: "without bundling, names are paths, and CommonJS has an extension that says nothing",
			want: Upload{
				Script: release.Script{
					MainModule: "index.js", CompatibilityDate: "2026-01-15",
					ModuleTypes: []release.ModuleType{{Name: "lib/old.cjs", Type: release.TypeCommonJS}},
				},
				Keep: lists("secret_text", "secret_key"),
			},
			files: lists("index.js application/javascript+module", "lib/add.wasm application/wasm", "lib/old.cjs application/javascript",
				"lib/util.js application/javascript+module"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind, raw := recorded(t, name)
			got, err := Read(kind, bytes.NewReader(raw), Limits{MaxModules: 10, MaxBytes: 1 << 20}, &memory{})
			if err != nil {
				t.Fatal(err)
			}
			accepted(t, got)
			var files []string
			for _, f := range got.Files {
				if !bytes.Contains(raw, append([]byte("\r\n\r\n"), f.Content...)) {
					t.Errorf("%s has another content than was sent", f.Name)
				}
				files = append(files, f.Name+" "+f.Type)
			}
			got.Files = nil
			if diff := gocmp.Diff(&test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
			if diff := gocmp.Diff(test.files, files); diff != "" {
				t.Errorf("%s: files (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

// accepted has the operator look at an upload.
func accepted(t *testing.T, up *Upload) {
	t.Helper()
	s := up.Script
	s.ScriptName = "hello"
	var stored []release.Module
	for _, f := range up.Files {
		stored = append(stored, release.Module{Name: f.Name, Key: f.Name, ETag: "e", Size: int64(len(f.Content))})
	}
	if _, err := script.New(s, stored, nil); err != nil {
		t.Errorf("the operator does not accept it: %v", err)
	}
}

func TestSettingsMapToWorkerDeployment(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		parts  []part
		want   Upload
	}{
		"folders, and a source map": {
			"names are those that modules import", []part{
				with(``), module, {"lib/util.js", release.TypeESModule, "x"}, {"index.js.map", "application/source-map", "{}"},
			},
			Upload{Files: []File{{"index.js", release.TypeESModule, []byte(module.content)}, {"lib/util.js", release.TypeESModule, []byte("x")}}},
		},
		"types that names do not tell": {
			"the type counts", []part{
				with(``), module, {"./a.graphql", "text/plain; charset=utf-8", "q"}, {"c.js", release.TypeCommonJS, "c"}, {"b.txt", release.TypeData, "b"},
			},
			Upload{
				Script: release.Script{ModuleTypes: []release.ModuleType{
					{Name: "a.graphql", Type: release.TypeText}, {Name: "b.txt", Type: release.TypeData}, {Name: "c.js", Type: release.TypeCommonJS},
				}},
				Files: []File{
					{"a.graphql", release.TypeText, []byte("q")}, {"b.txt", release.TypeData, []byte("b")}, {"c.js", release.TypeCommonJS, []byte("c")},
					{"index.js", release.TypeESModule, []byte(module.content)},
				},
			},
		},
		"secrets and what is kept": {
			"values are no settings", []part{with(`,"bindings":[
				{"name":"KEY","type":"secret_text","text":"a value"},{"name":"OLD","type":"inherit"},{"name":"EMPTY","type":"plain_text","text":""}],
				"keep_bindings":["plain_text","json"],"annotations":{"workers/message":"why","workers/tag":"v1","workers/other":"x"}`), module},
			Upload{
				Script:  release.Script{Bindings: []release.Binding{{Name: "EMPTY", Type: "plain_text"}}},
				Files:   []File{{"index.js", release.TypeESModule, []byte(module.content)}},
				Secrets: map[string]string{"KEY": "a value"}, Inherit: []string{"OLD"}, Keep: []string{"plain_text", "json"}, Message: "why", Tag: "v1",
			},
		},
		"a default that is named": {
			"inherit of the same name and the latest version is inherit", []part{with(`,"bindings":[
				{"name":"OLD","type":"inherit","old_name":"OLD","version_id":"latest"},{"name":"A","type":"plain_text","text":"x","raw":false}]`), module},
			Upload{
				Script:  release.Script{Bindings: []release.Binding{{Name: "A", Type: "plain_text", Text: "x"}}},
				Files:   []File{{"index.js", release.TypeESModule, []byte(module.content)}},
				Inherit: []string{"OLD"},
			},
		},
		"a flag twice": {
			"the API has a set of them", []part{with(`,"compatibility_flags":["b","a","b"]`), module},
			Upload{
				Script: release.Script{CompatibilityFlags: []string{"b", "a"}},
				Files:  []File{{"index.js", release.TypeESModule, []byte(module.content)}},
			},
		},
		"values of every shape": {
			"JSON is not read, and text is what JSON says", []part{with(`,"bindings":[{"name":"N","type":"json","json":null},
				{"name":"J","type":"json","json": {"a" : ["]},\\\"", {}]} },{"name":"T","type":"plain_text","text":"\u00e9\\,\"}"}]`), module},
			Upload{
				Script: release.Script{Bindings: []release.Binding{
					{Name: "N", Type: "json", JSON: &apiextensionsv1.JSON{Raw: []byte(`null`)}},
					{Name: "J", Type: "json", JSON: &apiextensionsv1.JSON{Raw: []byte(`{"a" : ["]},\\\"", {}]}`)}},
					{Name: "T", Type: "plain_text", Text: "é\\,\"}"},
				}},
				Files: []File{{"index.js", release.TypeESModule, []byte(module.content)}},
			},
		},
		"an empty module, and JavaScript of the older type": {
			"text/javascript is no text", []part{with(``), {"index.js", "text/javascript+module", "x"}, {"a.txt", "text/html", ""}, {"b.cjs", "text/javascript", "b"}},
			Upload{
				Script: release.Script{ModuleTypes: []release.ModuleType{{Name: "b.cjs", Type: release.TypeCommonJS}}},
				Files:  []File{{"a.txt", release.TypeText, []byte{}}, {"b.cjs", release.TypeCommonJS, []byte("b")}, {"index.js", release.TypeESModule, []byte("x")}},
			},
		},
		"exports that configure caches": {
			"there is no cache to configure, and no binding reaches another entry point", []part{with(`,"exports":{"default":{"type":"worker","cache":{"enabled":true}}}`), module},
			Upload{Files: []File{{"index.js", release.TypeESModule, []byte(module.content)}}},
		},
		"what has no effect": {
			"a template of wrangler has it", []part{module, with(`,"observability":{"enabled":true},"placement":{"mode":"smart"},"logpush":false,"limits":{},
				"tail_consumers":[],"migrations":null,"assets":{},"containers":[],"code_update_strategy":{"mode":"deferred"},"exports": { },
				"keep_assets":false,"cache_options":{"enabled":true},"package_dependencies":[{"name":"x"}],"usage_model":"standard"`)},
			Upload{Files: []File{{"index.js", release.TypeESModule, []byte(module.content)}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind, body := form(t, test.parts...)
			got, err := Read(kind, bytes.NewReader(body), limits, &memory{})
			if err != nil {
				t.Fatal(err)
			}
			test.want.Script.MainModule, test.want.Script.CompatibilityDate = "index.js", "2026-01-15"
			if diff := gocmp.Diff(&test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}

func TestMissingDateStaysEmpty(t *testing.T) {
	kind, body := form(t, settings(`{"main_module":"./index.js"}`), module)
	up, err := Read(kind, bytes.NewReader(body), limits, &memory{})
	if err != nil || up.Script.CompatibilityDate != "" || up.Script.MainModule != "index.js" {
		t.Errorf("got %+v, %v", up, err)
	}
}

// TestExtensionTypesMatchScriptPackage has the operator name the kinds.
func TestExtensionTypesMatchScriptPackage(t *testing.T) {
	kinds := map[string]string{
		release.TypeESModule: script.KindESModule, release.TypeWasm: script.KindWasm, release.TypeText: script.KindText,
		release.TypeJSON: script.KindJSON, release.TypeData: script.KindData,
	}
	for _, extension := range []string{".js", ".mjs", ".wasm", ".txt", ".html", ".css", ".md", ".sql", ".json", ".png", ".cjs", ".graphql", ""} {
		name := "a" + extension
		w, err := script.New(release.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15", MainModule: "m.mjs"},
			[]release.Module{{Name: "m.mjs", Key: "k", ETag: "e"}, {Name: name, Key: "k", ETag: "e"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(w.Modules, func(m script.Module) bool { return m.Name == name })
		if want := kinds[cmp.Or(extensionTypes[extension], release.TypeData)]; w.Modules[i].Kind != want {
			t.Errorf("%s: the operator has %s, and here it is %s", name, w.Modules[i].Kind, want)
		}
	}
}
