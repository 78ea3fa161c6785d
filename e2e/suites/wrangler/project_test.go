// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wrangler

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// project is a folder of a script, as its developer has it.
type project struct {
	s    *tests
	name string
	dir  string
	as   env.Command
}

// project makes the folder of a script, with its settings and files.
func (s *tests) project(t *testing.T, name, settings string, files map[string]string) *project {
	t.Helper()
	p := &project{s: s, name: name, dir: t.TempDir(), as: s.developer}
	p.as.Dir = p.dir
	p.write(t, files)
	p.configure(t, settings)
	return p
}

// configure writes the settings anew.
func (p *project) configure(t *testing.T, settings string) {
	t.Helper()
	p.write(t, map[string]string{"wrangler.toml": fmt.Sprintf("name = %q\nmain = \"src/index.js\"\ncompatibility_date = \"2026-01-15\"\n%s\n", p.name, settings)})
}

// write writes files into the folder.
func (p *project) write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// saying is a script that answers with an expression of JavaScript.
func saying(expression string) map[string]string {
	return map[string]string{"src/index.js": "export default { async fetch(request, env) { return new Response(" + expression + "); } };\n"}
}

// run runs wrangler in the folder.
func (p *project) run(t *testing.T, args ...string) string {
	t.Helper()
	return p.input(t, "", args...)
}

// input runs wrangler with an input.
func (p *project) input(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := p.as.RunInput(t.Context(), strings.NewReader(input), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// expectFailure runs wrangler, which has to fail and to say words.
func (p *project) expectFailure(t *testing.T, as env.Command, words []string, args ...string) {
	t.Helper()
	as.Dir = p.dir
	var all strings.Builder
	cmd := as.Cmd(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &all, &all
	err := cmd.Run()
	if err == nil {
		t.Errorf("wrangler %v succeeds and says %s", args, all.String())
		return
	}
	for _, word := range words {
		if !strings.Contains(all.String(), word) {
			t.Errorf("wrangler %v does not say %q but %s", args, word, all.String())
		}
	}
}

// served returns nil if the script answers so in a cluster.
func (s *tests) served(ctx context.Context, spoke *testbed.Site, name, want string) error {
	path := strings.Replace(testbed.ProxyPath, "spoke1", spoke.Name, 1) + "/api/v1/namespaces/workers-" + s.account +
		"/services/worker-" + name + ":http/proxy/"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Hub.REST.Host+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.asker.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && (resp.StatusCode != http.StatusOK || string(body) != want) {
		err = fmt.Errorf("%s answers %d, %.400q, want %q", name, resp.StatusCode, body, want)
	}
	return err
}

// waitForAnswer waits until the script answers so in both clusters.
func (p *project) waitForAnswer(t *testing.T, want string) {
	t.Helper()
	for _, spoke := range p.s.Spokes {
		testbed.Until(t, fmt.Sprintf("%s answers in %s", p.name, spoke.Name), testbed.Settle, func(ctx context.Context) error {
			return p.s.served(ctx, spoke, p.name, want)
		})
	}
}

// checkStillAnswers checks that the script answers so in both clusters.
func (p *project) checkStillAnswers(t *testing.T, want string) {
	t.Helper()
	for _, spoke := range p.s.Spokes {
		if err := p.s.served(t.Context(), spoke, p.name, want); err != nil {
			t.Errorf("%s: %v", spoke.Name, err)
		}
	}
}
