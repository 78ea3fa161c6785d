// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded is what a command of wrangler calls.
type recorded struct {
	Command string         `json:"command"`
	Calls   []recordedCall `json:"calls"`
}

// recordedCall has {v1} in place of the id of the version that was uploaded first.
type recordedCall struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Type   string `json:"type"`
	Body   string `json:"body"`
	Status int    `json:"status"`
}

// TestOldestWranglerIsServed replays what its commands call, all of which ended with code 0.
func TestOldestWranglerIsServed(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "wrangler-3.114.17.json"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []recorded
	if err := json.Unmarshal(raw, &commands); err != nil {
		t.Fatal(err)
	}
	w := serve(t)
	var ids []string // pairs of what is in the place of an id, and the id
	for _, command := range commands {
		for _, call := range command.Calls {
			name := strings.NewReplacer(ids...)
			got := w.ask(t, "jane", call.Method, name.Replace(call.Path), strings.NewReader(name.Replace(call.Body)), "Content-Type", call.Type)
			if got.status != call.Status {
				t.Errorf("wrangler %s: %s %s is answered %d %s, want %d", command.Command, call.Method, call.Path, got.status, got.raw, call.Status)
			}
			if id := uploadedBy(call, got); id != "" {
				ids = append(ids, fmt.Sprintf("{v%d}", len(ids)/2+1), id)
			}
		}
	}
	if len(commands) < 15 || len(ids) < 8 {
		t.Errorf("the recording has %d commands, with versions %q", len(commands), ids)
	}
}

// uploadedBy returns the id of the version that a call has uploaded, if it has.
func uploadedBy(call recordedCall, got answer) (id string) {
	path, _, _ := strings.Cut(call.Path, "?")
	result, _ := got.Result.(map[string]any)
	switch {
	case call.Method == http.MethodPut && strings.HasSuffix(path, "/scripts/shop"):
		id, _ = result["deployment_id"].(string)
	case call.Method == http.MethodPost && strings.HasSuffix(path, "/versions"):
		id, _ = result["id"].(string)
	}
	return id
}

// TestStartupTimeIsNumber: wrangler prints it.
func TestStartupTimeIsNumber(t *testing.T) {
	w := serve(t)
	for _, route := range []string{"PUT " + hello, "POST " + hello + "/versions"} {
		method, path, _ := strings.Cut(route, " ")
		body, kind := form(t, metadata, "export default {};")
		got := w.ask(t, "jane", method, path, body, "Content-Type", kind)
		result, _ := got.Result.(map[string]any)
		if figure, ok := result["startup_time_ms"].(float64); !ok || figure != 0 {
			t.Errorf("%s is answered %s", route, got.raw)
		}
	}
}

// TestInitFromDashIsRefusedWithReason, which are in the status line: wrangler shows no more of the
// answer.
func TestInitFromDashIsRefusedWithReason(t *testing.T) {
	w := serve(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/client/v4/accounts/1234/workers/services/hello/environments/production/content/v2", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if want := "403 not supported by Spokelet: init --from-dash, code is not given back"; resp.Status != want {
		t.Errorf("got %q, want %q", resp.Status, want)
	}
}

func TestPatchSettingsChangesOnlySecrets(t *testing.T) {
	const path = hello + "/settings"
	kept := `{"type":"plain_text","name":"GREETING"}`
	send := func(w *world, settings string) answer {
		body := "--b\r\nContent-Disposition: form-data; name=\"settings\"\r\n\r\n" + settings + "\r\n--b--"
		return w.ask(t, "jane", http.MethodPatch, path, strings.NewReader(body), "Content-Type", "multipart/form-data; boundary=b")
	}
	w := serve(t)
	body, kind := form(t, strings.Replace(metadata, `"bindings":[`, `"bindings":[{"name":"GREETING","type":"plain_text","text":"hello"},`, 1), "export default {};")
	if got := w.ask(t, "jane", http.MethodPut, hello, body, "Content-Type", kind); !got.Success {
		t.Fatal(got.raw)
	}
	for settings, want := range map[string]string{
		`{"bindings":[{"type":"plain_text","name":"GREETING","text":"x"}]}`: "no secret",
		`{"bindings":[{"type":"secret_text","name":"KEY"}]}`:                `without binding \"GREETING\"`,
		`{"bindings":[` + kept + `],"logpush":true}`:                        `setting \"logpush\"`,
		`{"bindings":1}`: "no form",
		`hunter2`:        "no form",
	} {
		if got := send(w, settings); got.status != http.StatusBadRequest || !strings.Contains(got.raw, want) || strings.Contains(got.raw, "hunter2") {
			t.Errorf("%s is answered %d %s, want %s", settings, got.status, got.raw, want)
		}
	}
	w.ask(t, "jane", http.MethodPatch, path, strings.NewReader("{}"), "Content-Type", "application/json").
		refused(t, "no form", http.StatusBadRequest, 10021, "no form")
	for _, step := range []struct{ more, want string }{
		{`,{"type":"secret_text","name":"KEY"},{"type":"secret_text","name":"NEW","text":"1"}`, `"result":[{"name":"KEY","type":"secret_text"},{"name":"NEW","type":"secret_text"}]`},
		{"", `"result":[]`}, // those that are left out are gone
	} {
		if got := send(w, `{"bindings":[`+kept+step.more+`]}`); !got.Success {
			t.Errorf("%s is answered %s", step.more, got.raw)
		}
		if got := w.ask(t, "jane", http.MethodGet, hello+"/secrets", nil); !strings.Contains(got.raw, step.want) {
			t.Errorf("after %s the secrets are %s, want %s", step.more, got.raw, step.want)
		}
	}
}
