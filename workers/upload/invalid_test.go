// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// hidden is a value that no message may have.
const hidden = "hunter2"

// refusal is an upload that is not taken, and the whole message.
type refusal struct {
	reason string
	parts  []part
	kind   Kind
	want   string
}

// many returns so many elements of a list.
func many(count int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", count), ",")
}

func refuse(t *testing.T, tests map[string]refusal) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kind, body := form(t, test.parts...)
			up, err := Read(kind, bytes.NewReader(body), limits, &memory{})
			bad, ok := errors.AsType[*Error](err)
			if !ok || up != nil || bad.Kind != test.kind || bad.Problem != test.want {
				t.Errorf("%s: got %+v, %v, want kind %d, %s", test.reason, up, err, test.kind, test.want)
			}
		})
	}
}

func TestInconsistentUploadIsRejected(t *testing.T) {
	one := func(metadata string) []part { return []part{settings(metadata), module} }
	refuse(t, map[string]refusal{
		"no metadata":                {"nothing says what is the entry", []part{module}, Malformed, "the upload has no part metadata"},
		"metadata twice":             {"which of them counts", []part{with(``), with(``), module}, Malformed, "the upload has two parts metadata"},
		"empty metadata":             {"it is no JSON", one(""), Malformed, "the metadata is no JSON"},
		"metadata that is cut":       {"it is no JSON", one(`{"main_module":"` + hidden), Malformed, "the metadata is no JSON"},
		"two values":                 {"what follows would be lost", one(`{"main_module":"index.js"} {}`), Malformed, "the metadata is no JSON"},
		"metadata in Latin-1":        {"decoding would change values", one("{\"main_module\":\"\xe9\"}"), Malformed, "the metadata is no JSON"},
		"metadata that is a list":    {"it has no fields", one(`["` + hidden + `"]`), Malformed, "the metadata is no JSON object"},
		"metadata that is null":      {"it has no fields", one(`null`), Malformed, "the metadata is no JSON object"},
		"a field twice":              {"which of them counts", one(`{"main_module":"index.js","main_\u006dodule":"x"}`), Malformed, "the metadata: there are two fields main_module"},
		"a name that is a number":    {"it is no text", one(`{"main_module":7}`), Malformed, "the metadata: main_module is no string"},
		"bindings that are no list":  {"they are not read", one(`{"main_module":"index.js","bindings":{"A":"` + hidden + `"}}`), Malformed, "the metadata: bindings is no list"},
		"annotations in a list":      {"they are not read", one(`{"main_module":"index.js","annotations":["` + hidden + `"]}`), Malformed, "annotations is no JSON object"},
		"a tag that is a number":     {"it is no text", one(`{"main_module":"index.js","annotations":{"workers/tag":7}}`), Malformed, "annotations: workers/tag is no string"},
		"a long message":             {"the version is annotated with it", one(`{"main_module":"index.js","annotations":{"workers/message":"` + many(3000, "x") + `"}}`), Malformed, "annotations: workers/message has 5999 bytes, and the limit is 4096"},
		"no entry named":             {"nothing handles events", one(`{}`), Malformed, "the metadata has neither main_module nor body_part"},
		"both formats":               {"a script has one", []part{with(`,"body_part":"index.js"`), module}, Malformed, "the metadata has both main_module and body_part"},
		"an entry that is not there": {"nothing handles events", []part{with(``), {"other.js", release.TypeESModule, "x"}}, Malformed, "module index.js, which main_module names, is not in the upload"},
		"a body that is not there":   {"nothing handles events", one(`{"body_part":"worker.js"}`), Malformed, "module worker.js, which body_part names, is not in the upload"},
		"an entry of text":           {"it is not run", []part{with(``), {"index.js", "text/plain", "x"}}, Malformed, "module index.js, which main_module names, has type text/plain, and has to be application/javascript+module"},
		"a body that is a module":    {"workerd would not take it", one(`{"body_part":"index.js"}`), Malformed, "module index.js, which body_part names, has type application/javascript+module, and has to be application/javascript"},
		"an entry that leads out":    {"it is no module", one(`{"main_module":"../index.js"}`), Malformed, "module ../index.js: its name is no path within the script"},
		"a module that leads out":    {"of another account", []part{with(``), module, {"../../5678/x.js", release.TypeESModule, "x"}}, Malformed, "module ../../5678/x.js: its name is no path within the script"},
		"a module of the root":       {"it is absolute", []part{with(``), module, {"/etc/passwd", release.TypeData, "x"}}, Malformed, "module /etc/passwd: its name is no path within the script"},
		"a module that is the root":  {"it is no file", []part{with(``), module, {"./", release.TypeData, "x"}}, Malformed, "module ./: its name is no path within the script"},
		"a module twice":             {"they resolve to one", []part{with(``), module, {"./index.js", release.TypeESModule, "x"}}, Malformed, "module index.js: there are two of this name"},
		"a source map twice":         {"as any part", []part{with(``), module, {"m", typeSourceMap, "x"}, {"m", typeSourceMap, "x"}}, Malformed, "module m: there are two of this name"},
		"a module without a name":    {"it cannot be imported", []part{with(``), module, {"", release.TypeData, "x"}}, Malformed, "the upload has a part without a name"},
		"a long name":                {"the API has 512 bytes, and a terminal fewer", []part{with(``), module, {strings.Repeat("x", 600), release.TypeData, "x"}}, Malformed, "module " + strings.Repeat("x", 128) + "...: its name has more than 512 bytes"},
		"an entry for a terminal":    {"it would obey", one(`{"main_module":"a\u001b[2J"}`), Malformed, `module "a\x1b[2J": its name is no text`},
		"a name with a control":      {"a terminal would obey it", []part{with(``), module, {"a\u009b2J", release.TypeData, "x"}}, Malformed, `module "a\u009b2J": its name is no text`},
		"a name in Latin-1":          {"JSON could not name it", []part{with(``), module, {"a\xe9", release.TypeData, "x"}}, Malformed, `module "a\xe9": its name is no text`},
		"a type that is none":        {"it is no media type", []part{with(``), module, {"a", "a/b/c", "x"}}, Malformed, "module a: its Content-Type is none"},
	})
}

func TestInconsistentBindingIsRejected(t *testing.T) {
	of := func(fields string) []part { return []part{with(`,"bindings":[` + fields + `]`), module} }
	refuse(t, map[string]refusal{
		"a binding that is a text":  {"it has no name", of(`"` + hidden + `"`), Malformed, "binding 1 is no JSON object"},
		"no name":                   {"the message says which", of(`{"name":"A","type":"inherit"},{"type":"plain_text","text":"x"}`), Malformed, "binding 2 has no name"},
		"a name that is a list":     {"it is no text", of(`{"name":["A"]}`), Malformed, "binding 1: name is no string"},
		"a long name":               {"the API has 128 bytes", of(`{"name":"` + strings.Repeat("A", 129) + `","type":"inherit"}`), Malformed, "binding 1: name has 129 bytes, and the limit is 128"},
		"no type":                   {"it has no meaning", of(`{"name":"A"}`), Malformed, "binding A has no type"},
		"a type that is a number":   {"it is no text", of(`{"name":"A","type":7}`), Malformed, "binding A: type is no string"},
		"a name twice":              {"one would hide the other", of(`{"name":"A","type":"inherit"},{"name":"A","type":"secret_text","text":"` + hidden + `"}`), Malformed, "binding A: there are two of this name"},
		"a field twice":             {"one would hide the other", of(`{"name":"A","type":"plain_text","text":"` + hidden + `","text":"x"}`), Malformed, "binding 1: there are two fields text"},
		"a text without one":        {"a script would see undefined", of(`{"name":"A","type":"plain_text"}`), Malformed, "binding A: text is missing"},
		"Text for text":             {"JSON has case", of(`{"name":"A","type":"plain_text","Text":"x"}`), Unsupported, "binding A: Text of type plain_text is not supported"},
		"a secret without a text":   {"null is no value", of(`{"name":"A","type":"secret_text","text":null}`), Malformed, "binding A: text is missing"},
		"a secret of another shape": {"it is not repeated", of(`{"name":"A","type":"secret_text","text":["` + hidden + `"]}`), Malformed, "binding A: text is no string"},
		"a long secret":             {"the API has 64 KiB", of(`{"name":"A","type":"secret_text","text":"` + strings.Repeat(hidden, 10_000) + `"}`), Malformed, "binding A: text has 70000 bytes, and the limit is 65536"},
		"a JSON without one":        {"a script would see undefined", of(`{"name":"A","type":"json"}`), Malformed, "binding A: json is missing"},
		"a long JSON":               {"as a text", of(`{"name":"A","type":"json","json":[` + many(40_000, "1") + `]}`), Malformed, "binding A: json has 80001 bytes, and the limit is 65536"},
		"a part without one":        {"it has no value", of(`{"name":"A","type":"data_blob"}`), Malformed, "binding A: part is missing"},
		"a part that leads out":     {"it is no module", of(`{"name":"A","type":"text_blob","part":"../x"}`), Malformed, "binding A: its part is no name of a module"},
		"a part that is not there":  {"it has no value", of(`{"name":"A","type":"text_blob","part":"motto.txt"}`), Malformed, "binding A: part motto.txt is not in the upload"},
		"many bindings":             {"the API has 128", of(many(200, `{"name":"A","type":"inherit"}`)), Malformed, "the metadata: bindings has more than 128 elements, which is the limit"},
		"many fields":               {"no binding has as many", of(`{` + many(65, `"x":1`) + `}`), Malformed, "binding 1 has more than 64 fields"},
		"many flags":                {"the API has 64", []part{with(`,"compatibility_flags":[` + many(65, `"a"`) + `]`), module}, Malformed, "the metadata: compatibility_flags has more than 64 elements, which is the limit"},
		"a flag that is a number":   {"it is no text", []part{with(`,"compatibility_flags":[7]`), module}, Malformed, "the metadata: an element of compatibility_flags is no string of at most 128 bytes"},
		"a date that is a story":    {"the API has 32 bytes", []part{settings(`{"main_module":"index.js","compatibility_date":"` + strings.Repeat("1", 40) + `"}`), module}, Malformed, "the metadata: compatibility_date has 40 bytes, and the limit is 32"},
	})
}

func TestUnsupportedSettingsAreRejected(t *testing.T) {
	set := func(fields string) []part { return []part{with("," + fields), module} }
	of := func(fields string) []part { return set(`"bindings":[` + fields + `]`) }
	file := func(name, kind string) []part { return []part{with(``), module, {name, kind, "x"}} }
	refuse(t, map[string]refusal{
		"a type of nobody":         {"it is a mistake, or newer than this", of(`{"name":"A","type":"telepathy"}`), Unknown, "binding A: type telepathy is unknown: Cloudflare has none of this name"},
		"a type for a terminal":    {"it is quoted", of(`{"name":"A B","type":"\u001b[2J"}`), Unknown, `binding "A B": type "\x1b[2J" is unknown: Cloudflare has none of this name`},
		"another inherited name":   {"names are not mapped", of(`{"name":"A","type":"inherit","old_name":"B"}`), Unsupported, "binding A: old_name of type inherit is not supported"},
		"another version":          {"the version before is the latest", of(`{"name":"A","type":"inherit","version_id":"0e9f0f0a"}`), Unsupported, "binding A: version_id of type inherit is not supported"},
		"a field nobody knows":     {"of a binding", of(`{"name":"A","type":"plain_text","text":"x","scope":"` + hidden + `"}`), Unsupported, "binding A: scope of type plain_text is not supported"},
		"modules that are kept":    {"they are not in the upload", set(`"keep_bindings":["text_blob"]`), Unsupported, "keep_bindings: type text_blob is not supported"},
		"migrations":               {"there are no Durable Objects", set(`"migrations":{"new_tag":"v1","steps":[{"new_classes":["Room"]}]}`), Unsupported, "setting migrations (classes of Durable Objects) is not supported"},
		"assets":                   {"nothing serves them", set(`"assets":{"jwt":"` + hidden + `"}`), Unsupported, "setting assets (static files) is not supported"},
		"assets alone":             {"the message is not that there is no entry", []part{settings(`{"assets":{"jwt":"` + hidden + `"}}`)}, Unsupported, "setting assets (static files) is not supported"},
		"assets that are kept":     {"there are none", set(`"keep_assets":true`), Unsupported, "setting keep_assets is not supported"},
		"containers":               {"nothing runs them", set(`"containers":[{"class_name":"X"}]`), Unsupported, "setting containers is not supported"},
		"tail consumers":           {"nothing calls them", set(`"tail_consumers":[{"service":"x"}]`), Unsupported, "setting tail_consumers is not supported"},
		"streaming tail consumers": {"nothing calls them", set(`"streaming_tail_consumers":[{"service":"x"}]`), Unsupported, "setting streaming_tail_consumers is not supported"},
		"logpush":                  {"nothing pushes", set(`"logpush":true`), Unsupported, "setting logpush is not supported"},
		"limits":                   {"nothing enforces them", set(`"limits":{"cpu_ms":5}`), Unsupported, "setting limits (of CPU time and subrequests) is not supported"},
		"a field that is newer":    {"it may mean anything", set(`"telepathy":0`), Unsupported, "setting telepathy is not supported"},
		"another case":             {"Bindings are no bindings", set(`"Bindings":[{"name":"A"}]`), Unsupported, "setting Bindings is not supported"},
		"exports of objects":       {"there are no Durable Objects", set(`"exports":{"Room":{"type":"durable-object"}}`), Unsupported, "setting exports (Durable Objects, workflows) is not supported"},
		"exports of workflows":     {"there are none", set(`"exports":{"default":{"type":"worker"},"Flow":{"type":"workflow","name":"f"}}`), Unsupported, "setting exports (Durable Objects, workflows) is not supported"},
		"exports of more":          {"it may mean anything", set(`"exports":{"default":{"type":"worker","telepathy":1}}`), Unsupported, "setting exports (Durable Objects, workflows) is not supported"},
		"exports that are a list":  {"it may mean anything", set(`"exports":["Room"]`), Unsupported, "setting exports (Durable Objects, workflows) is not supported"},
		"a preview alias":          {"nothing serves it", set(`"annotations":{"workers/alias":"x"}`), Unsupported, "annotation workers/alias (a preview alias) is not supported"},
		"Python":                   {"workerd here has none", file("main.py", "text/x-python"), Unsupported, "module main.py: Python is not supported"},
		"requirements of Python":   {"workerd here has none", file("numpy", "text/x-python-requirement"), Unsupported, "module numpy: Python is not supported"},
		"a type that is not known": {"a script would see something else", file("a", "image/png"), Unsupported, "module a: type image/png is not supported"},
		"a map that is imported":   {"the operator leaves it out", file("world.map", release.TypeData), Unsupported, "module world.map: a name with .map that is no source map is not supported"},
	})
}

func TestUnsupportedBindingTypesAreRejected(t *testing.T) {
	for _, kind := range []string{
		"kv_namespace", "d1", "r2_bucket", "queue", "durable_object_namespace", "service", "ai", "browser", "analytics_engine", "vectorize",
		"hyperdrive", "send_email", "version_metadata", "assets", "dispatch_namespace", "mtls_certificate", "workflow", "pipelines",
		"secrets_store_secret", "ratelimit", "images", "secret_key",
	} {
		content, body := form(t, with(`,"bindings":[{"name":"CACHE","type":"`+kind+`","id":"`+hidden+`"}]`), module)
		_, err := Read(content, bytes.NewReader(body), limits, &memory{})
		want := &Error{Unsupported, "binding CACHE: type " + kind + " is not supported"}
		if bad, ok := errors.AsType[*Error](err); !ok || *bad != *want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestMalformedFormIsRejected(t *testing.T) {
	for _, kind := range []string{
		"", "application/json", "multipart/form-data", "multipart/mixed; boundary=x", "multipart/form-data; boundary=", ";",
		"multipart/form-data; boundary=" + strings.Repeat("x", 71),
	} {
		if _, err := Read(kind, strings.NewReader("{}"), limits, &memory{}); !errors.As(err, new(*Error)) {
			t.Errorf("%q: got %v", kind, err)
		}
	}
}

// TestErrorsContainNoSecret spoils an upload with secrets in every way that its text can be
// spoilt by one byte.
func TestErrorsContainNoSecret(t *testing.T) {
	kind, whole := form(t, with(`,"bindings":[{"name":"A","type":"secret_text","text":"`+hidden+`"},{"name":"B","type":"plain_text","text":"`+hidden+`"},
		{"name":"J","type":"json","json":{"a":"`+hidden+`"}}],"annotations":{"workers/message":"`+hidden+`"}`), part{"index.js", release.TypeESModule, hidden + "\r\n" + hidden})
	failed := 0
	for i := range whole {
		for _, c := range []byte("\x00\n\":-{}[]\\, 7\xff") {
			body := bytes.Clone(whole)
			body[i] = c
			up, err := Read(kind, bytes.NewReader(body), limits, &memory{})
			if err == nil {
				continue
			}
			failed++
			// A byte may turn a value into a name, but not all of it into one of a known field.
			if up != nil || strings.Contains(err.Error(), hidden) {
				t.Fatalf("%q at byte %d: got %+v, %v", c, i, up, err)
			}
		}
	}
	if failed < len(whole) {
		t.Errorf("only %d of %d spoilt uploads were refused", failed, len(whole))
	}
}

// TestErrorsRepeatNoBodyLine has mime/multipart meet lines that its own errors repeat.
func TestErrorsRepeatNoBodyLine(t *testing.T) {
	const head = "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{}\r\n--b"
	for reason, rest := range map[string]string{
		"a header without a colon": "\r\n" + hidden + "\r\n\r\n",
		"a line after a boundary":  "\r\n \r\n" + hidden,
		"no line break":            "\n" + hidden + ": x\r\n\r\n",
		"a header of many lines":   "\r\nContent-Disposition: form-data; name=\"a\"\r\n " + hidden + ":\r\n\x00" + hidden + "\r\n\r\n",
	} {
		_, err := Read("multipart/form-data; boundary=b", strings.NewReader(head+rest+"\r\n--b--\r\n"), limits, &memory{})
		if bad, ok := errors.AsType[*Error](err); !ok && !errors.Is(err, ErrIncomplete) || ok && bad.Kind != Malformed || strings.Contains(fmt.Sprint(err), hidden) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}
