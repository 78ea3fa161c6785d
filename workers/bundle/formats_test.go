// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// formats has a script in each format, which both fail when they are asked to, and one that
// imports CommonJS and a text that its name does not tell.
func formats() Input {
	const both = "; console.log('asked', { a: 1 }); if (url.includes('fail')) throw new Error('on purpose');"
	return Input{Account: "1234", Workers: []script.Worker{
		{
			Name: "modules", EnvPrefix: "MODULES_", Main: "index.js", CompatibilityDate: "2026-01-15",
			Modules: []script.Module{
				{Name: "index.js", Kind: script.KindESModule, ETag: `import common from "./common.js"; import query from "./a.graphql";
export default { async fetch(request) { const url = request.url` + both + ` return new Response(common.text + query); } };`},
				{Name: "a.graphql", Kind: script.KindText, ETag: "{ query }"},
				{Name: "common.js", Kind: script.KindCommonJS, ETag: "module.exports = { text: 'common ' };"},
			},
		},
		{
			Name: "events", EnvPrefix: "EVENTS_", Body: "worker.js", CompatibilityDate: "2026-01-15",
			Modules: []script.Module{
				{Name: "worker.js", Kind: script.KindServiceWorker, ETag: `addEventListener("fetch", event => event.respondWith(answer(event.request)));
async function answer(request) { const url = request.url` + both + `
  const { exports } = await WebAssembly.instantiate(ADD, {});
  return new Response([exports.add(2, 3), PAGE, new Uint8Array(LOGO).join(), TEXT, KEY].join(" ")); }`},
				{Name: "ADD", Kind: script.KindWasm, ETag: sum},
				{Name: "LOGO", Kind: script.KindData, ETag: "\x00\xff"},
				{Name: "PAGE", Kind: script.KindText, ETag: "a page"},
			},
			Bindings: []script.Binding{
				{Name: "ADD", Type: release.BindingWasmModule, Part: "ADD"}, {Name: "KEY", Type: release.BindingSecretText, Variable: "EVENTS_KEY"},
				{Name: "LOGO", Type: release.BindingDataBlob, Part: "LOGO"}, {Name: "PAGE", Type: release.BindingTextBlob, Part: "PAGE"},
				{Name: "TEXT", Type: release.BindingPlainText, Text: "a text"},
			},
		},
	}}
}

func TestWorkerdServesBothScriptFormats(t *testing.T) {
	in, dir := formats(), t.TempDir()
	fill(t, dir, in, in.Config())
	serve(t, dir, []string{tailName, "w0", "w1"}, "EVENTS_KEY=a key")
	for socket, want := range map[string]string{"w0": "common { query }", "w1": "5 a page 0,255 a text a key"} {
		if got := ask(t, dir, socket, ""); got != want {
			t.Errorf("%s answers %q, want %q", socket, got, want)
		}
	}
}

func TestWorkerdServesProbesOfBothScriptFormats(t *testing.T) {
	in := formats()
	for i := range in.Workers {
		name, dir := serviceName(i), t.TempDir()
		fill(t, dir, in, in.Probe(i, "unix:"+socketOf(dir, name)))
		serve(t, dir, []string{name})
	}
}

// traced is a line of the tail worker.
type traced struct {
	size   int
	Script string `json:"script"`
	Event  struct {
		Outcome   string `json:"outcome"`
		Truncated bool   `json:"truncated"`
		Logs      []struct {
			Message []any `json:"message"`
		} `json:"logs"`
		Exceptions []struct {
			Message string `json:"message"`
		} `json:"exceptions"`
		Event *struct {
			Request struct {
				URL     string            `json:"url"`
				Headers map[string]string `json:"headers"`
			} `json:"request"`
		} `json:"event"`
	} `json:"event"`
}

// lines are those of the tail worker in an output, as far as they are whole.
func lines(t *testing.T, text string) []traced {
	t.Helper()
	var all []traced
	for line := range strings.Lines(text) {
		raw, marked := strings.CutPrefix(line, "\x1e")
		if !marked || !strings.HasSuffix(line, "\n") {
			continue
		}
		l := traced{size: len(line) - len("\x1e\n")}
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatalf("%.200q: %v", line, err)
		}
		all = append(all, l)
	}
	return all
}

// waitFor returns the lines of the tail worker when there are as many as expected. An event is
// written after its request has been answered.
func waitFor(t *testing.T, out *output, expected int) []traced {
	t.Helper()
	var got []traced
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		got = lines(t, out.String())
		return len(got) >= expected, nil
	})
	if err != nil || len(got) != expected {
		t.Fatalf("there are %d lines, want %d: %v", len(got), expected, err)
	}
	return got
}

// send sends a request with a header that is nobody's business, and others.
func send(t *testing.T, dir, socket, method, path string, headers ...http.Header) int {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socketOf(dir, socket))
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://worker/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		maps.Copy(request.Header, h)
	}
	request.Header.Set("Authorization", "Bearer a-token-of-somebody")
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatalf("%s: %v", socket, err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

func TestTailWorkerWritesEventsAfterPost(t *testing.T) {
	in, dir := formats(), t.TempDir()
	fill(t, dir, in, in.Config())
	out := serve(t, dir, []string{tailName, "w0", "w1"}, "EVENTS_KEY=a key")
	ask(t, dir, "w0", "before")
	if code := send(t, dir, tailName, http.MethodGet, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("a GET is answered with %d", code)
	}
	ask(t, dir, "w1", "before")
	if code := send(t, dir, tailName, http.MethodPost, ""); code != http.StatusNoContent {
		t.Errorf("a POST is answered with %d", code)
	}
	send(t, dir, "w0", http.MethodGet, "one")
	send(t, dir, "w1", http.MethodGet, "two")
	send(t, dir, "w0", http.MethodGet, "fail")
	send(t, dir, "w1", http.MethodGet, "fail")
	got := waitFor(t, out, 4)
	for i, want := range []struct{ script, path, outcome string }{{"modules", "one", "ok"}, {"events", "two", "ok"}, {"modules", "fail", "exception"}, {"events", "fail", "exception"}} {
		l := got[i]
		if l.Event.Event == nil {
			t.Fatalf("line %d has no request", i)
		}
		if l.Script != want.script || l.Event.Outcome != want.outcome || !strings.HasSuffix(l.Event.Event.Request.URL, want.path) {
			t.Errorf("line %d is %+v, want %+v", i, l, want)
		}
		if header := l.Event.Event.Request.Headers["authorization"]; header != "REDACTED" {
			t.Errorf("line %d has the header %q", i, header)
		}
		if len(l.Event.Logs) != 1 {
			t.Fatalf("line %d has the logs %v", i, l.Event.Logs)
		}
		if diff := cmp.Diff([]any{"asked", map[string]any{"a": 1.0}}, l.Event.Logs[0].Message); diff != "" {
			t.Errorf("line %d (-want +got):\n%s", i, diff)
		}
	}
	for i, l := range got {
		var thrown []string
		for _, e := range l.Event.Exceptions {
			thrown = append(thrown, e.Message)
		}
		if failed := i >= 2; failed != slices.Contains(thrown, "on purpose") {
			t.Errorf("line %d has the exceptions %q", i, thrown)
		}
	}
}

func TestTailWorkerStopsAfterTimeout(t *testing.T) {
	in, dir := formats(), t.TempDir()
	const duration = "const duration = 30_000;"
	config := bytes.Replace(in.Config(), []byte(duration), []byte("const duration = 300;"), 1)
	if bytes.Contains(config, []byte(duration)) {
		t.Fatal("the duration is not what it was")
	}
	fill(t, dir, in, config)
	out := serve(t, dir, []string{tailName, "w0", "w1"}, "EVENTS_KEY=a key")
	written, silent := 0, 0
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		if written == 0 { // a busy machine may take longer than the duration
			send(t, dir, tailName, http.MethodPost, "")
		}
		ask(t, dir, "w0", "")
		if got := len(lines(t, out.String())); got > written {
			written, silent = got, 0
		} else {
			silent++
		}
		return written > 0 && silent > 20, nil
	})
	if err != nil {
		t.Errorf("after %d lines and %d requests without one: %v", written, silent, err)
	}
}

func TestTailWorkerTruncatesLongEvents(t *testing.T) {
	const bound = 128 << 10
	many := map[string][]string{}
	for _, name := range []string{"a", "b", "c"} {
		many[name] = []string{strings.Repeat(`"`, 25_000)}
	}
	for name, tc := range map[string]struct {
		reason, source string
		headers        http.Header
		cut            bool
		logs, thrown   int
		request        bool
	}{
		"few logs":        {reason: "they are all there", source: `console.log("x".repeat(10_000));`, logs: 1, request: true},
		"many logs":       {reason: "they are the largest", source: `for (let i = 0; i < 20; i++) console.log("x".repeat(10_000));`, cut: true, request: true},
		"other alphabets": {reason: "bytes count, not letters", source: `for (let i = 0; i < 7; i++) console.log("é".repeat(10_000));`, cut: true, request: true},
		"exceptions beside logs": {
			reason: "they say more", cut: true, thrown: 1, request: true,
			source: `for (let i = 0; i < 20; i++) console.log("x".repeat(10_000)); ctx.waitUntil(Promise.reject(new Error("x")));`,
		},
		"many exceptions": {
			reason: "all that is without a bound goes", cut: true, request: true,
			source: `for (let i = 0; i < 50; i++) ctx.waitUntil(Promise.reject(new Error("x".repeat(4_000))));`,
		},
		"large headers": {reason: "whoever asks chooses them", headers: many, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			in, dir := formats(), t.TempDir()
			in.Workers[0].Modules[0].ETag = "export default { fetch(request, env, ctx) { " + tc.source + ` return new Response(""); } };`
			fill(t, dir, in, in.Config())
			out := serve(t, dir, []string{tailName, "w0", "w1"})
			send(t, dir, tailName, http.MethodPost, "")
			send(t, dir, "w0", http.MethodGet, "", tc.headers)
			got := waitFor(t, out, 1)
			e := got[0].Event
			if e.Truncated != tc.cut || len(e.Logs) != tc.logs || len(e.Exceptions) != tc.thrown || (e.Event != nil) != tc.request || e.Outcome == "" {
				t.Errorf("%s: truncated %t, %d logs, %d exceptions, request %+v, outcome %q", tc.reason, e.Truncated, len(e.Logs), len(e.Exceptions), e.Event, e.Outcome)
			}
			if got[0].size > bound {
				t.Errorf("%s: the line has %d bytes", tc.reason, got[0].size)
			}
		})
	}
}

// Services and sockets are named by places, so that no script is taken for the tail worker.
func TestScriptMayHaveNameOfTailWorker(t *testing.T) {
	in, dir := formats(), t.TempDir()
	in.Workers[0].Name = tailName
	in.Workers[1].Name = serviceName(0)
	in.Workers[0].Modules[0].ETag = `export default { async fetch(request, env) {
  const reached = [];
  for (const to of ["http://tail/", "http://localhost:8079/", "http://w1/"]) {
    try { reached.push((await fetch(to, { method: "POST" })).status); } catch { reached.push("refused"); }
  }
  return Response.json([Object.keys(env), reached]);
} };`
	fill(t, dir, in, in.Config())
	out := serve(t, dir, []string{tailName, "w0", "w1"}, "EVENTS_KEY=a key")
	if got, want := ask(t, dir, "w0", ""), `[[],["refused","refused","refused"]]`; got != want {
		t.Errorf("it finds and reaches %s, want %s", got, want)
	}
	if code := send(t, dir, tailName, http.MethodPost, ""); code != http.StatusNoContent {
		t.Errorf("the tail worker answers with %d", code)
	}
	ask(t, dir, "w0", "")
	ask(t, dir, "w1", "")
	var scripts []string
	for _, l := range waitFor(t, out, 2) {
		scripts = append(scripts, l.Script)
	}
	if diff := cmp.Diff([]string{"tail", "w0"}, scripts); diff != "" {
		t.Errorf("scripts of the lines (-want +got):\n%s", diff)
	}
}
