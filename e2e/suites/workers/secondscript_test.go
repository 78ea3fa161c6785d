// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// parts is a script with modules and bindings of all kinds. Its URLs have the forms that the
// first script's have not.
const parts = `
apiVersion: api.worker-deployment/v1alpha1
kind: WorkerDeployment
metadata: {name: parts}
spec:
  template:
    scriptName: a_parts
    compatibilityDate: "2026-01-15"
    scriptsUrls: ["%s"]
    bindings:
    - {name: DATA, type: json, json: {list: [1, 2]}}
    - {name: BLOB, type: text_blob, part: lib/note.txt}
    - {name: RAW, type: data_blob, part: lib/raw.bin}
    - {name: TEXT, type: plain_text, text: "say \"hello\", \\ é\n"}
`

// partsIndex is its main module, which tells what it finds.
const partsIndex = `import add from "./add.wasm";
import note from "./lib/note.txt";
import numbers from "./lib/numbers.json";
import raw from "./lib/raw.bin";
import { double } from "./lib/double.js";

const wasm = new WebAssembly.Instance(add).exports;
const say = (body, status = 200, type = "text/plain") =>
  new Response(body, { status, headers: { "Content-Type": type, "X-Script": "a_parts" } });

export default { async fetch(request, env) {
  const url = new URL(request.url);
  switch (url.pathname) {
  case "/":
    return say([double(env.DATA.list[1]), note.trim(), env.BLOB.trim(), add instanceof WebAssembly.Module, env.API_KEY].join(" "));
  case "/sum":
    return say(JSON.stringify({ sum: wasm.add(url.searchParams.get("a"), url.searchParams.get("b")), numbers }), 200, "application/json");
  case "/env":
    return say(JSON.stringify(Object.keys(env).sort()));
  case "/text":
    return say(env.TEXT, 203);
  case "/module":
    return say(raw, 200, "application/octet-stream");
  case "/binding":
    return say(env.RAW, 200, "application/octet-stream");
  case "/echo":
    return say(request.method + " " + await request.text(), 201);
  case "/empty":
    return say(null, 204);
  case "/throws":
    throw new Error("on purpose");
  }
  return say(url.pathname + url.search, 404);
} };
`

// partsModules are the modules; the one of WebAssembly adds two numbers.
func partsModules() map[string]string {
	return map[string]string{
		"index.js": partsIndex, "lib/double.js": "export const double = (n) => 2 * n;\n", "lib/note.txt": "noted\n",
		"lib/numbers.json": `{"one":1}`, "lib/raw.bin": "\x00\x01\xfe\xff\r\n",
		"add.wasm": "\x00asm\x01\x00\x00\x00\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f\x03\x02\x01\x00\x07\x07\x01\x03add\x00\x00\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b",
	}
}

// testSecondScript comes before the first one, which gets the next port in new pods: nobody who
// asks one of them reaches the other.
func (s *tests) testSecondScript(t *testing.T) {
	s.apply(t, fmt.Sprintf(parts, s.bare(s.put(t, "a_parts", "1", partsModules()))))
	stop := s.checkKeepsAnswering(t)
	s.waitForServed(t, "a_parts", "4 noted noted true ")
	s.waitForReady(t, "parts")
	s.waitForBundle(t, 2, 2)
	stop()
}

// byHand configures workerd for both scripts, without a word of the operator's.
const byHand = `using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [ (name = "hello", worker = .hello), (name = "a_parts", worker = .parts) ],
  sockets = [
    (name = "hello", address = "127.0.0.1:0", http = (), service = "hello"),
    (name = "a_parts", address = "127.0.0.1:0", http = (), service = "a_parts"),
  ],
);

const hello :Workerd.Worker = (
  modules = [ (name = "index.js", esModule = embed "hello/index.js") ],
  compatibilityDate = "2026-01-15",
  bindings = [ (name = "GREETING", text = "Hello"), (name = "API_KEY", fromEnvironment = "KEY") ],
);

const parts :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "a_parts/index.js"),
    (name = "lib/double.js", esModule = embed "a_parts/lib/double.js"),
    (name = "lib/note.txt", text = embed "a_parts/lib/note.txt"),
    (name = "lib/numbers.json", json = embed "a_parts/lib/numbers.json"),
    (name = "lib/raw.bin", data = embed "a_parts/lib/raw.bin"),
    (name = "add.wasm", wasm = embed "a_parts/add.wasm"),
  ],
  compatibilityDate = "2026-01-15",
  bindings = [
    (name = "DATA", json = "{\"list\": [1, 2]}"),
    (name = "BLOB", text = embed "a_parts/lib/note.txt"),
    (name = "RAW", data = embed "a_parts/lib/raw.bin"),
    (name = "TEXT", text = "say \"hello\", \\ \xc3\xa9\n"),
  ],
);
`

// testSameAsWorkerd asks the scripts in both clusters and in a workerd of this machine.
func (s *tests) testSameAsWorkerd(t *testing.T) {
	alone := s.startWorkerd(t, map[string]map[string]string{"hello": hello("v1"), "a_parts": partsModules()})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for script, requests := range map[string]map[string]request{
		"hello": {
			"text and a secret":           {method: http.MethodGet},
			"a path that it looks not at": {method: http.MethodGet, path: "any/path"},
		},
		"a_parts": {
			"all kinds of modules":          {method: http.MethodGet},
			"WebAssembly that is run":       {method: http.MethodGet, path: "sum?a=2&b=40"},
			"bindings and no others":        {method: http.MethodGet, path: "env"},
			"text that has to be escaped":   {method: http.MethodGet, path: "text"},
			"bytes of a module":             {method: http.MethodGet, path: "module"},
			"bytes of a binding":            {method: http.MethodGet, path: "binding"},
			"a body that is sent":           {method: http.MethodPost, path: "echo", body: strings.Repeat("0123456789", 10_000)},
			"no body":                       {method: http.MethodGet, path: "empty"},
			"a script that fails":           {method: http.MethodGet, path: "throws"},
			"a path with escapes":           {method: http.MethodGet, path: "a%20b/%C3%A9?q=%26&r="},
			"a path that ends with a slash": {method: http.MethodGet, path: "folder/"},
		},
	} {
		for what, r := range requests {
			want, err := r.send(t.Context(), client, alone[script])
			if err != nil {
				t.Fatal(err)
			}
			if want.Type == "" && want.Body != "" {
				want.Type = http.DetectContentType([]byte(want.Body)) // as every server in Go does, API servers among them
			}
			for _, spoke := range s.Spokes {
				got, err := s.asks(t.Context(), spoke, script, r)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("%s in %s: %s: %v (-workerd alone +through the hub):\n%.4000s", script, spoke.Name, what, err, diff)
				}
			}
		}
	}
}

// startWorkerd starts workerd with scripts, until the test ends, and returns their URLs.
func (s *tests) startWorkerd(t *testing.T, scripts map[string]map[string]string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"config.capnp": byHand}
	for script, modules := range scripts {
		for name, content := range modules {
			files[filepath.Join(script, name)] = content
		}
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	workerd := env.Command{Path: s.workerd, Dir: dir, Env: []string{"KEY=" + secondSecret}}
	// It tells on its output which port each socket has got.
	running := testbed.Follow(t, workerd, "serve", "--control-fd=1", "config.capnp")
	urls := map[string]string{}
	testbed.Until(t, "workerd listens", testbed.Patience, func(context.Context) error {
		for line := range bytes.Lines([]byte(running.Text())) {
			var event struct {
				Socket string
				Port   int
			}
			if json.Unmarshal(line, &event) == nil && event.Port != 0 {
				urls[event.Socket] = fmt.Sprintf("http://127.0.0.1:%d/", event.Port)
			}
		}
		if len(urls) < len(scripts) {
			return fmt.Errorf("it says %q", running.Text())
		}
		return nil
	})
	return urls
}

// testRejectedScripts: workerd's words are in the status, and what was served before is.
func (s *tests) testRejectedScripts(t *testing.T) {
	s.ask(t, "broken", map[string]string{"index.js": "export default { fetch( };\n"})
	got := s.waitForStatus(t, "hello", "says what workerd says", func(got status) error {
		return got.is("Built", "False", "Rejected", "SyntaxError")
	})
	if got.Served == got.Release || got.Served == "" {
		t.Errorf("status is %+v", got)
	}
	s.waitForStatus(t, "hello", "says that the previous one is served", func(got status) error {
		return got.is("Ready", "False", "PreviousServed", got.Served)
	})
	s.checkStillHello(t)
	s.checkStillServed(t, "a_parts", "4 noted noted true ")
	// Another script is not held up by it.
	modules := maps.Clone(partsModules())
	modules["index.js"] = "export default { fetch() { return new Response('again'); } };\n"
	s.change(t, "workerdeployment", "parts", fmt.Sprintf(`{"spec":{"template":{"scriptsUrls":[%q]}}}`, s.put(t, "a_parts", "2", modules)))
	s.waitForServed(t, "a_parts", "again")
	s.checkStillHello(t)
}
