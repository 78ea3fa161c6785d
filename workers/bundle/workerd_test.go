// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// workerd returns the path of the binary that judges what is generated.
func workerd(t *testing.T) string {
	t.Helper()
	path := os.Getenv("SPOKELET_WORKERD")
	if path == "" {
		t.Skip("SPOKELET_WORKERD names no workerd; npm pack @cloudflare/workerd-linux-64 has one, package/bin/workerd")
	}
	return path
}

const (
	// environ answers with all that a worker finds in its environment.
	environ = `import page from "./page.txt";
import add from "./lib/add.wasm";
import config from "./lib/config.json";
export default {
  async fetch(request, env) {
    const found = {};
    for (const name of Object.keys(env)) {
      found[name] = env[name] instanceof ArrayBuffer ? [...new Uint8Array(env[name])].join() : env[name];
    }
    const { exports } = await WebAssembly.instantiate(add, {});
    return Response.json({ found, page, config, sum: exports.add(2, 3) });
  },
};`
	// reach answers with what becomes of a request to an address, by both ways out.
	reach = `import { connect } from "cloudflare:sockets";
export default {
  async fetch(request) {
    const address = new URL(request.url).searchParams.get("address");
    const answers = [];
    try { answers.push((await fetch("http://" + address)).status); } catch (e) { answers.push("refused"); }
    try { await connect(address).opened; answers.push("opened"); } catch (e) { answers.push("refused"); }
    return Response.json(answers);
  },
};`
	// sum is a module of WebAssembly whose function add adds.
	sum = "0061736d0100000001070160027f7f017f030201000707010361646400000a09010700200020016a0b"
)

// socketOf is beside the folder of the modules, which has the name of the worker.
func socketOf(dir, name string) string { return filepath.Join(dir, name+".sock") }

// fill writes modules where a configuration finds them. The content of each is its ETag.
func fill(t *testing.T, dir string, in Input, config []byte) {
	t.Helper()
	write := func(path string, content []byte) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range in.Workers {
		for j, m := range w.Modules {
			content := []byte(m.ETag)
			if m.Kind == script.KindWasm {
				content, _ = hex.DecodeString(m.ETag)
			}
			write(in.Path(i, j), content)
		}
	}
	write("config.capnp", config)
}

// serve runs workerd in a folder until it listens on the sockets, which are moved to files of
// the folder, and until the test ends.
func serve(t *testing.T, dir string, sockets []string, env ...string) *output {
	t.Helper()
	args := []string{"serve", "config.capnp", "--control-fd=3"}
	for _, name := range sockets {
		args = append(args, "--socket-addr="+name+"=unix:"+socketOf(dir, name))
	}
	said, control, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	out := &output{}
	cmd := exec.CommandContext(t.Context(), workerd(t), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, env, out, out, []*os.File{control}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	control.Close()
	t.Cleanup(func() {
		_ = cmd.Wait() // the context of the test has ended, and workerd with it
		if t.Failed() {
			t.Logf("workerd: %s", out.String())
		}
	})
	events := json.NewDecoder(said)
	for range sockets {
		var event map[string]any
		if err := events.Decode(&event); err != nil || event["event"] != "listen" {
			t.Fatalf("workerd: got %v, %v, want a socket that is open", event, err)
		}
	}
	return out
}

// ask sends a request to a socket of the folder.
func ask(t *testing.T, dir, socket, query string) string {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socketOf(dir, socket))
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://worker/"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatalf("%s: %v", socket, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%s: %v", socket, err)
	}
	return string(body)
}

// loaded is an input whose first worker has a binding of each type and hostile texts, and
// whose second tells what it reaches.
func loaded() Input {
	in := Input{Account: "1234", Workers: []script.Worker{
		{
			Name: "environ", EnvPrefix: "ENVIRON_", Main: "index.js", CompatibilityDate: "2026-01-15", CompatibilityFlags: []string{"nodejs_compat"},
			Modules: []script.Module{
				{Name: "index.js", Kind: script.KindESModule, ETag: environ},
				{Name: `a "b"#?\.txt`, Kind: script.KindText, ETag: "x"},
				{Name: "lib/add.wasm", Kind: script.KindWasm, ETag: sum},
				{Name: "lib/config.json", Kind: script.KindJSON, ETag: `{"a":[1]}`},
				{Name: "logo.png", Kind: script.KindData, ETag: "\x00\xff\n"},
				{Name: "page.txt", Kind: script.KindText, ETag: "the \x00 page"},
			},
			Bindings: []script.Binding{
				{Name: "$logo", Type: release.BindingDataBlob, Part: "logo.png"},
				{Name: "OBJ", Type: release.BindingJSON, JSON: json.RawMessage(`{"a":[1,"\u003c\"\\","é"]}`)},
				{Name: "PAGE", Type: release.BindingTextBlob, Part: "page.txt"},
				{Name: "TOKEN", Type: release.BindingSecretText, Variable: "ENVIRON_TOKEN"},
				{Name: "UNSET", Type: release.BindingSecretText, Variable: "ENVIRON_UNSET"},
			},
		},
		{
			Name: "reach", EnvPrefix: "REACH_", Main: "reach.mjs", CompatibilityDate: "2023-02-28",
			Modules: []script.Module{{Name: "reach.mjs", Kind: script.KindESModule, ETag: reach}},
		},
	}}
	w := &in.Workers[0]
	for name, text := range hostile {
		w.Bindings = append(w.Bindings, script.Binding{Name: strings.ReplaceAll(name, " ", "_"), Type: release.BindingPlainText, Text: text})
	}
	return in
}

// found is what environ answers with, when its secrets are these.
func found(token, unset any) map[string]any {
	all := map[string]any{
		"$logo": "0,255,10", "OBJ": map[string]any{"a": []any{1.0, "<\"\\", "é"}}, "PAGE": "the \x00 page", "TOKEN": token, "UNSET": unset,
	}
	for name, text := range hostile {
		all[strings.ReplaceAll(name, " ", "_")] = string([]rune(text)) // JavaScript has no text of other bytes
	}
	return map[string]any{"found": all, "page": "the \x00 page", "config": map[string]any{"a": []any{1.0}}, "sum": 5.0}
}

func decoded(t *testing.T, answer string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(answer), &value); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return value
}

func TestWorkerdServesEachWorkerOnItsSocket(t *testing.T) {
	inside := httptest.NewServer(http.NotFoundHandler())
	defer inside.Close()
	in := loaded()
	dir := t.TempDir()
	fill(t, dir, in, in.Config())
	const token = `a "secret" \ é`
	serve(t, dir, []string{tailName, "w0", "w1"}, "ENVIRON_TOKEN="+token, "REACH_TOKEN=of another worker")
	if diff := cmp.Diff(any(found(token, nil)), decoded(t, ask(t, dir, "w0", ""))); diff != "" {
		t.Errorf("what the script finds (-want +got):\n%s", diff)
	}
	for name, address := range map[string]string{
		"a server of the same machine": inside.Listener.Addr().String(), "the metadata of a cloud": "169.254.169.254:80", "a Service": "10.96.0.1:443",
		"the machine by name": "localhost:80", "the machine in IPv6": "[::1]:80", "the machine in IPv6 of IPv4": "[::ffff:127.0.0.1]:80", "no address": "0.0.0.0:80",
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, dir, "w1", "?address="+url.QueryEscape(address)); got != `["refused","refused"]` {
				t.Errorf("a worker reached %s: %s", address, got)
			}
		})
	}
}

func TestWorkerdServesAProbe(t *testing.T) {
	in := loaded()
	for i, want := range []any{found(placeholder, placeholder), []any{"refused", "refused"}} {
		name := serviceName(i)
		dir := t.TempDir()
		fill(t, dir, in, in.Probe(i, "unix:"+socketOf(dir, name)))
		serve(t, dir, []string{name}, "ENVIRON_TOKEN=that nobody gives")
		if diff := cmp.Diff(want, decoded(t, ask(t, dir, name, "?address=1.1.1.1:80"))); diff != "" {
			t.Errorf("worker %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestWorkerdReadsHostileConfigs(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			in := filled(text)
			for kind, config := range map[string][]byte{"config": in.Config(), "probe": in.Probe(0, text)} {
				cmd := exec.CommandContext(t.Context(), workerd(t), "compile", "--config-only", "config.capnp")
				cmd.Dir = t.TempDir()
				fill(t, cmd.Dir, in, config)
				var said bytes.Buffer
				cmd.Stderr = &said
				if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte(text)) {
					t.Errorf("%s: %v: %s", kind, err, said.String())
				}
			}
		})
	}
}
