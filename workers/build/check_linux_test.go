// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package build

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	builder "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
)

// fetched is a step after fetch: scripts in their folder.
func fetched(t *testing.T, workers ...worker) CheckConfig {
	t.Helper()
	c := standIn(t)
	in := bundle.Input{Account: "a"}
	for i, w := range workers {
		in.Workers = append(in.Workers, w.Worker)
		for j := range w.Modules {
			write(t, filepath.Join(c.Work, in.Path(i, j)), w.sources[j])
		}
	}
	root, err := os.OpenRoot(c.Work)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := writeConfigs(in, root); err != nil {
		t.Fatal(err)
	}
	c.Input = writeInput(t, in)
	return c
}

// worker is a script with the text of its modules.
type worker struct {
	script.Worker

	sources []string
}

// javascript is a script of one module.
func javascript(source string) worker {
	return worker{
		Worker: script.Worker{
			Name: "hello", EnvPrefix: "HELLO_", Main: "index.js", CompatibilityDate: "2026-01-15",
			Modules: []script.Module{{Name: "index.js", Kind: script.KindESModule, Key: "a/hello/1/index.js", ETag: "e", Size: int64(len(source))}},
		},
		sources: []string{source},
	}
}

// events is a script in the format of service workers.
func events(source string) worker {
	w := javascript(source)
	w.Main, w.Body = "", "worker.js"
	w.Modules[0].Name, w.Modules[0].Kind = w.Body, script.KindServiceWorker
	return w
}

func (w worker) named(name string) worker { w.Name = name; return w }

func (w worker) dated(date string) worker { w.CompatibilityDate = date; return w }

func (w worker) flagged(flags ...string) worker { w.CompatibilityFlags = flags; return w }

func (w worker) bound(b script.Binding) worker { w.Bindings = append(w.Bindings, b); return w }

func (w worker) with(name, kind, source string) worker {
	w.Modules = append(w.Modules, script.Module{Name: name, Kind: kind, Size: int64(len(source))})
	w.sources = append(w.sources, source)
	return w
}

const (
	hello = `export default { fetch() { return new Response("hello"); } };`
	// adder is a module of WebAssembly without content.
	adder = "\x00asm\x01\x00\x00\x00"
	// listening is a script in the format of service workers.
	listening = `addEventListener("fetch", event => event.respondWith(new Response("hello")));`
)

// checked runs Check on a machine that may be busy with other tests.
func checked(t *testing.T, c CheckConfig) ([]builder.Rejection, error) {
	t.Helper()
	for range 5 {
		rejected, err := Check(t.Context(), c)
		if !errors.Is(err, ErrCannotCheck) {
			return rejected, err
		}
		t.Log(err)
		c.Timeout *= 2
	}
	return Check(t.Context(), c)
}

func TestCheckAcceptsValidScripts(t *testing.T) {
	cases := map[string]struct {
		reason string
		worker worker
	}{
		"a script":               {"most are so", javascript(hello)},
		"one without handlers":   {"whether it handles an event is seen when one comes", javascript(`export default {};`)},
		"one that speaks":        {"what it writes is not what workerd says", javascript(`console.log("hello"); console.error("service w0: oh"); ` + hello)},
		"one of several modules": {"it imports by name", javascript(`import x from "./lib/x.js"; import wasm from "./add.wasm"; import t from "a.txt";`+hello).with("lib/x.js", script.KindESModule, "export default 1;").with("add.wasm", script.KindWasm, adder).with("a.txt", script.KindText, "hello")},
		"one with a secret":      {"its value is not there, and a script that needs one is no bad script", javascript(`import { env } from "cloudflare:workers"; if (!env.TOKEN.length) throw new Error("none"); ` + hello).bound(script.Binding{Name: "TOKEN", Type: release.BindingSecretText, Variable: "HELLO_TOKEN"})},
		"one of Node":            {"a flag changes what there is", javascript(`import { Buffer } from "node:buffer"; Buffer.from("x"); ` + hello).flagged("nodejs_compat")},
		"one of CommonJS":        {"a module may be required", javascript(`import x from "./x.js"; if (x.a !== 1) throw new Error("none"); `+hello).with("x.js", script.KindCommonJS, "module.exports = { a: 1 };")},
		"a service worker":       {"the older format", events(listening)},
		"a service worker with bindings": {"they are there when it starts", events(`new WebAssembly.Instance(ADD); if (TEXT !== "hello" || KEY.length < 1) throw new Error("none"); `+listening).
			with("add.wasm", script.KindWasm, adder).with("a.txt", script.KindText, "hello").
			bound(script.Binding{Name: "ADD", Type: release.BindingWasmModule, Part: "add.wasm"}).bound(script.Binding{Name: "TEXT", Type: release.BindingTextBlob, Part: "a.txt"}).
			bound(script.Binding{Name: "KEY", Type: release.BindingSecretText, Variable: "HELLO_KEY"})},
		"one that looks for files": {"there are none that are worth anything", javascript(`import fs from "node:fs"; try { fs.readFileSync("/etc/passwd"); throw 1; } catch (e) { if (e === 1) throw new Error("read"); } ` + hello).flagged("nodejs_compat")},
	}
	path := workerd(t)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := fetched(t, test.worker)
			c.Workerd = path
			if rejected, err := checked(t, c); err != nil || rejected != nil {
				t.Errorf("%s\n%v, %v", test.reason, rejected, err)
			}
			if left, _ := os.ReadDir(c.Temp); len(left) > 0 {
				t.Errorf("it leaves %s", left)
			}
		})
	}
}

func TestCheckRejectsInvalidScripts(t *testing.T) {
	cases := map[string]struct {
		reason string
		worker worker
		want   string
	}{
		"an error of syntax":                       {"the message names the line", javascript("export default {\n  fetch( {\n"), "Uncaught SyntaxError: Unexpected end of input\n  at index.js:3"},
		"syntax of a service worker":               {"the message names the line, too", events("addEventListener('fetch', (\n"), "Uncaught SyntaxError: Unexpected end of input"},
		"a service worker that fails":              {"it would fail in the cluster", events(`throw new Error("boom"); ` + listening), "Uncaught Error: boom\n  at script:1:7\nNo event handlers were registered. This script does nothing."},
		"a service worker that imports":            {"it is no module", events(`import x from "./x.js"; ` + listening), "Uncaught SyntaxError: Cannot use import statement outside a module"},
		"a binding that is no WebAssembly":         {"it is compiled when it is loaded", events(listening).with("add.wasm", script.KindWasm, "none").bound(script.Binding{Name: "ADD", Type: release.BindingWasmModule, Part: "add.wasm"}), "CompileError"},
		"a service worker that listens to nothing": {"it could answer nothing", events(`console.log("hello");`), "No event handlers were registered. This script does nothing."},
		"a module that is missing":                 {"and the importer", javascript(`import "./x.js"; ` + hello), "Uncaught Error: No such module \"x.js\".\n  imported from \"index.js\""},
		"an error at the start":                    {"it would fail in the cluster", javascript(`throw new Error("boom");`), "Uncaught Error: boom\n  at index.js:1:7"},
		"a date of the future":                     {"workerd does not know what will be", javascript(hello).dated("2099-01-01"), "2099-01-01"},
		"an unknown flag":                          {"as the date", javascript(hello).flagged("no_such_flag"), "No such compatibility flag: no_such_flag"},
		"WebAssembly that is none":                 {"it is compiled when it is loaded", javascript(`import "./add.wasm"; `+hello).with("add.wasm", script.KindWasm, "none"), "Uncaught CompileError: WasmModuleObject"},
		"a wait":                                   {"nothing comes at the start", javascript(`await new Promise(() => {});`), "Uncaught Error: Top-level await in module is unsettled."},
		"a request":                                {"nothing is asked at the start", javascript(`await fetch("http://192.0.2.1/");`), "Uncaught Error: Disallowed operation called within global scope."},
		"much memory":                              {"it would take that of others", javascript(`const a = []; for (;;) a.push(new Array(1e5).fill(a.length));`), "out of memory"}, // where V8 runs out of it is its own affair
		"many buffers":                             {"they are not of V8's heap", javascript(`const a = []; for (;;) a.push(new Uint8Array(1e7).fill(1));`), "Uncaught RangeError: Array buffer allocation failed"},
		"many words":                               {"the last ones are workerd's", javascript(`for (let i = 0; i < 1e4; i++) console.error("service x: " + "x".repeat(100)); throw new Error("end");`), "Uncaught Error: end"},
		"hostile words":                            {"a condition is read in terminals, and by programs", javascript(`throw new Error("\u001b[31mred\u001b]0;title\u0007 \u0000\u202e\ud800é");`), "Uncaught Error: red"},
		"an environment":                           {"the message would show it", javascript(`import p from "node:process"; throw new Error(JSON.stringify(p.env));`).flagged("nodejs_compat"), "Uncaught Error: {}"},
	}
	path := workerd(t)
	t.Setenv("SPOKELET_SECRET", "secret")
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := fetched(t, test.worker)
			c.Workerd = path
			rejected, err := checked(t, c)
			if err != nil || len(rejected) != 1 || rejected[0].ScriptName != "hello" {
				t.Fatalf("%s\n%v, %v", test.reason, rejected, err)
			}
			message := rejected[0].Message
			if !strings.Contains(message, test.want) {
				t.Errorf("%s\nit says %q, not %q", test.reason, message, test.want)
			}
			for _, word := range []string{c.Work, c.Temp, "\x1b", "\x00", "secret", "stack:", "service"} {
				if strings.Contains(message, word) {
					t.Errorf("%q has %q", message, word)
				}
			}
			if len(message) > maxMessage {
				t.Errorf("it has %d bytes", len(message))
			}
		})
	}
}

func TestCheckRejectsScriptThatNeverLoads(t *testing.T) {
	path := workerd(t)
	cases := map[string]struct{ reason, source string }{
		"for a loop":              {"workerd itself has no limit", `for (;;) {}`},
		"for a loop of promises":  {"each is done, and there is another", `await new Promise(() => queueMicrotask(function again() { queueMicrotask(again); }));`},
		"for a loop in the error": {"workerd asks the script what to say", `throw new (class extends Error { get message() { for (;;) {} } })();`},
	}
	for name, test := range cases {
		// One after the other: each takes a processor for itself.
		t.Run(name, func(t *testing.T) {
			c := fetched(t, javascript(test.source))
			c.Workerd, c.Timeout = path, time.Second
			rejected, err := checked(t, c)
			if err != nil || len(rejected) != 1 || !strings.HasPrefix(rejected[0].Message, "workerd: the script is not loaded within ") {
				t.Errorf("%s\n%v, %v", test.reason, rejected, err)
			}
		})
	}
}

func TestCheckMessageIsDeterministic(t *testing.T) {
	t.Parallel()
	path := workerd(t)
	var before []builder.Rejection
	for i := range 2 {
		// Its place in the bundle changes, and its folder.
		others := slices.Repeat([]worker{javascript(hello).named("other")}, i)
		c := fetched(t, slices.Concat(others, []worker{javascript(`const a = []; for (;;) a.push(new Array(1e5).fill(a.length));`)})...)
		c.Workerd = path
		rejected, err := checked(t, c)
		if err != nil || len(rejected) != 1 {
			t.Fatalf("%v, %v", rejected, err)
		}
		if diff := cmp.Diff(before, rejected); i > 0 && diff != "" {
			t.Error(diff)
		}
		before = rejected
	}
}

func TestCheckIsolatesScripts(t *testing.T) {
	c := fetched(t, javascript(`throw new Error("one");`).named("one"), javascript(hello).named("two"), javascript(`throw new Error("three");`).named("three"))
	c.Workerd = workerd(t)
	got, err := checked(t, c)
	want := []builder.Rejection{
		{ScriptName: "one", Message: "Uncaught Error: one\n  at index.js:1:7"},
		{ScriptName: "three", Message: "Uncaught Error: three\n  at index.js:1:7"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestCheckedScriptCannotConnect(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		if conn, err := listener.Accept(); err == nil {
			conn.Close()
			t.Error("it connected")
		}
	}()
	path := workerd(t)
	// Not the probe's configuration: one that a tenant might wish for.
	c := fetched(t, javascript(hello))
	write(t, filepath.Join(c.Work, probeFile(0)), fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "w0", worker = (serviceWorkerScript = "addEventListener('fetch', e => 1)", compatibilityDate = "2026-01-15")),
    (name = "out", external = (address = "%s", http = ())),
  ],
  sockets = [(name = "s", address = "%s", http = (), service = "w0"), (name = "t", address = "127.0.0.1:0", http = (), service = "w0")],
);`, listener.Addr(), "unix:"+socketName))
	c.Workerd = path
	rejected, err := checked(t, c)
	if err != nil || len(rejected) != 1 || !strings.Contains(rejected[0].Message, "Operation not permitted") {
		t.Errorf("%v, %v", rejected, err)
	}
	listener.Close()
	<-accepted
}

func TestCheckRejectsNothingOnEnvironmentFailure(t *testing.T) {
	const load = "load"
	cases := map[string]struct {
		reason string
		does   string
		change func(t *testing.T, c *CheckConfig)
		want   string
	}{
		"workerd is not there": {
			reason: "an image without it is the operator's fault",
			change: func(_ *testing.T, c *CheckConfig) { c.Workerd = "/nowhere/workerd" },
			want:   "check script hello: confine workerd: execute /nowhere/workerd: no such file or directory",
		},
		"workerd does not run": {
			reason: "a script of no content is rejected, too",
			does:   doNothing,
			change: func(t *testing.T, c *CheckConfig) {
				c.Workerd = filepath.Join(t.TempDir(), broken)
				if err := os.Link(self(t), c.Workerd); err != nil {
					raw, _ := os.ReadFile(self(t)) // another file system
					write(t, c.Workerd, string(raw))
					os.Chmod(c.Workerd, 0o700)
				}
			},
			want: "check script hello: workerd cannot check scripts here now: of an empty script it says: the library is missing",
		},
		"workerd is killed": {
			reason: "the machine has no memory left: the script has a limit of its own",
			does:   doDie,
			want:   "check script hello: workerd cannot check scripts here now: it was killed, as for want of memory",
		},
		"workerd gets no processor": {
			reason: "a script that waits is rejected at once, one that loops uses the processor",
			does:   doWait,
			change: func(_ *testing.T, c *CheckConfig) { c.Timeout = 5 * time.Second }, // two starts of a program take less than a fourth
			want:   "check script hello: workerd cannot check scripts here now: it had the processor for",
		},
		"nobody confines": {
			reason: "the code of a tenant is not run",
			does:   load,
			change: func(_ *testing.T, c *CheckConfig) { c.Confine = nil },
			want:   "check script hello: confine workerd: no command does it",
		},
		"another program confines": {
			reason: "what does not say that it confined did not",
			does:   load,
			change: func(t *testing.T, c *CheckConfig) {
				c.Confine = []string{self(t), attempt, filepath.Join(c.Work, probeFile(0))}
			},
			want: "check script hello: confine workerd: it ended before: ",
		},
		"no input": {
			reason: "there is nothing to check",
			change: func(_ *testing.T, c *CheckConfig) { c.Input = "/nowhere/input" },
			want:   "input: open /nowhere/input: no such file or directory",
		},
		"no place for a socket": {
			reason: "the container has it",
			change: func(_ *testing.T, c *CheckConfig) { c.Temp = "/nowhere" },
			want:   "check script hello: temporary folder: ",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // one of them waits
			c := fetched(t, javascript(hello))
			write(t, filepath.Join(c.Work, probeFile(0)), test.does)
			if test.change != nil {
				test.change(t, &c)
			}
			rejected, err := Check(t.Context(), c)
			if err == nil || rejected != nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Fatalf("%s\n%v, %v, not %q", test.reason, rejected, err, test.want)
			}
			if !FailedResult(err).Failure.Retry {
				t.Errorf("%s\nit is not tried again: %v", test.reason, err)
			}
		})
	}
}

func TestCanceledCheckLeavesNoProcess(t *testing.T) {
	t.Parallel() // it waits
	c := fetched(t, javascript(hello))
	write(t, filepath.Join(c.Work, probeFile(0)), doWait)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	rejected, err := Check(ctx, c)
	if !errors.Is(err, context.DeadlineExceeded) || rejected != nil || !FailedResult(err).Failure.Retry {
		t.Errorf("%v, %v", rejected, err)
	}
	if left, _ := os.ReadDir(c.Temp); len(left) > 0 {
		t.Errorf("it leaves %s", left)
	}
}

func TestCheckStopsAtBudget(t *testing.T) {
	c := fetched(t, javascript(hello).named("one"), javascript(hello).named("two"))
	for i := range 2 {
		write(t, filepath.Join(c.Work, probeFile(i)), doNothing+":bad")
	}
	c.Budget = time.Nanosecond
	got, err := Check(t.Context(), c)
	if diff := cmp.Diff([]builder.Rejection{{ScriptName: "one", Message: "bad"}}, got); diff != "" || err != nil {
		t.Errorf("the Job has a deadline, and the next build finds the rest: %v\n%s", err, diff)
	}
}
