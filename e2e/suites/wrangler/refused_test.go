// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wrangler

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// rejected: the words are workerd's.
func (s *tests) rejected(t *testing.T) {
	const served = "'kept'"
	p := s.project(t, "kept", "", saying(served))
	p.run(t, "deploy")
	p.until(t, "kept")
	p.write(t, map[string]string{"src/index.js": "export default { fetch() { return new Response('no'); } };\nthrow new Error('never to be loaded');\n"})
	p.fails(t, p.as, []string{"never to be loaded", "10021"}, "deploy")
	p.still(t, "kept")
	if out := p.run(t, "deployments", "list"); strings.Count(out, "(100%)") != 1 {
		t.Errorf("deployments list says %s", out)
	}
	// A new script that is rejected is not there.
	q := s.project(t, "never", "", map[string]string{"src/index.js": "throw new Error('never to be loaded');\nexport default { fetch() {} };\n"})
	q.fails(t, q.as, []string{"never to be loaded"}, "deploy")
	if left := s.Hub.Kubectl(t, "get", "workerdeployments", "-n", team, "-o", "name"); strings.Contains(left, "never") {
		t.Errorf("there is %s", left)
	}
	// What is right again is deployed as before.
	p.write(t, saying("'kept again'"))
	p.run(t, "deploy")
	p.until(t, "kept again")
}

func (s *tests) notSupported(t *testing.T) {
	for name, test := range map[string]struct {
		settings string
		words    []string
	}{
		"KV":              {"[[kv_namespaces]]\nbinding = \"CACHE\"\nid = \"0123456789abcdef0123456789abcdef\"", []string{"CACHE", "not supported"}},
		"D1":              {"[[d1_databases]]\nbinding = \"DB\"\ndatabase_name = \"db\"\ndatabase_id = \"0e9f0f0a-0000-4000-8000-000000000000\"", []string{"DB", "not supported"}},
		"R2":              {"[[r2_buckets]]\nbinding = \"FILES\"\nbucket_name = \"files\"", []string{"not supported"}},
		"queues":          {"[[queues.producers]]\nbinding = \"LATER\"\nqueue = \"later\"", []string{"not supported"}},
		"Durable Objects": {"[durable_objects]\nbindings = [{name = \"ROOM\", class_name = \"Room\"}]\n[[migrations]]\ntag = \"v1\"\nnew_classes = [\"Room\"]", []string{"not supported"}},
		"assets":          {"[assets]\ndirectory = \"./public\"", []string{"not supported"}},
	} {
		p := s.project(t, "wants", test.settings, map[string]string{
			"src/index.js":      "export class Room {}\nexport default { fetch() { return new Response('x'); } };\n",
			"public/index.html": "x",
		})
		t.Log(name)
		p.fails(t, p.as, test.words, "deploy")
	}
	p := s.project(t, "wants", "", saying("'x'"))
	for _, args := range [][]string{{"kv", "namespace", "list"}, {"d1", "list"}, {"r2", "bucket", "list"}, {"queues", "list"}} {
		p.fails(t, p.as, []string{"not supported"}, args...)
	}
	if left := s.Hub.Kubectl(t, "get", "workerdeployments", "-n", team, "-o", "name"); strings.Contains(left, "wants") {
		t.Errorf("there is %s", left)
	}
}

func (s *tests) refused(t *testing.T) {
	p := s.project(t, "mine", "", saying("'mine'"))
	good := s.token(t, "developer", "--audience=spokelet-workers")
	for reason, test := range map[string]struct {
		as    env.Command
		words []string
	}{
		"a token that is none":                 {s.with(t, account, "nonsense"), []string{"Invalid access token"}},
		"a token for the API server":           {s.with(t, account, s.token(t, "developer")), []string{"Invalid access token"}},
		"the account of somebody else":         {s.with(t, other, good), []string{"Unauthorized"}},
		"an account that there is not":         {s.with(t, "none", good), []string{"Unauthorized"}},
		"who may look may not deploy":          {s.as(t, "viewer"), []string{"Unauthorized", "may not"}},
		"an account that leads somewhere else": {s.with(t, "../user", good), nil},
	} {
		t.Log(reason)
		p.fails(t, test.as, test.words, "deploy")
	}
	// Who may look sees what is there.
	looks := *p
	looks.as = s.as(t, "viewer")
	looks.as.Dir, looks.name = p.dir, "kept"
	if out := looks.run(t, "deployments", "list", "--name", "kept"); !strings.Contains(out, "(100%)") {
		t.Errorf("deployments list says %s", out)
	}
	p.fails(t, looks.as, []string{"Unauthorized"}, "delete", "--name", "kept", "--force")
	p.fails(t, looks.as, []string{"Unauthorized"}, "rollback", "--name", "kept", "-y")
}

// client is one that sends what wrangler would not.
func (s *tests) client(t *testing.T) *http.Client {
	t.Helper()
	authority, err := os.ReadFile(s.Env.WorkersCA())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// form is a multipart form with metadata and a module.
func form(t *testing.T, metadata, module string) (contentType string, body []byte) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	if metadata != "" {
		if err := w.WriteField("metadata", metadata); err != nil {
			t.Fatal(err)
		}
	}
	part, err := w.CreatePart(map[string][]string{
		"Content-Disposition": {`form-data; name="index.js"; filename="index.js"`}, "Content-Type": {"application/javascript+module"},
	})
	if err == nil {
		_, err = io.WriteString(part, module)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), out.Bytes()
}

// wrongUploads: each is refused in the envelope of the API, and nothing of it is left.
func (s *tests) wrongUploads(t *testing.T) {
	client, token := s.client(t), s.token(t, "developer", "--audience=spokelet-workers")
	put := func(ctx context.Context, contentType string, body io.Reader) (status int, text string, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.Env.WorkersAPI()+"/accounts/"+account+"/workers/scripts/wrong", body)
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(raw), err
	}
	const metadata = `{"main_module":"index.js","compatibility_date":"2026-01-15","bindings":[]}`
	kind, whole := form(t, metadata, "export default {};\n")
	for reason, test := range map[string]upload{
		"no form":                {"application/json", []byte("{}"), http.StatusBadRequest, "multipart"},
		"a form that is cut":     {kind, whole[:len(whole)-20], http.StatusBadRequest, ""},
		"no metadata":            second(form(t, "", "export default {};")).with(http.StatusBadRequest, "metadata"),
		"metadata that is none":  second(form(t, "[", "export default {};")).with(http.StatusBadRequest, "metadata"),
		"a module that is named": second(form(t, `{"main_module":"other.js","compatibility_date":"2026-01-15"}`, "x")).with(http.StatusBadRequest, "other.js"),
		"a kind of binding":      second(form(t, `{"main_module":"index.js","compatibility_date":"2026-01-15","bindings":[{"name":"A","type":"telepathy"}]}`, "x")).with(http.StatusBadRequest, "telepathy"),
		"25 MiB":                 second(form(t, metadata, strings.Repeat("// 25 MiB\n", 25<<20/10))).with(http.StatusRequestEntityTooLarge, "16 MiB"),
	} {
		status, text, err := put(t.Context(), test.kind, bytes.NewReader(test.body))
		var answer struct {
			Success bool
			Errors  []struct{ Code int }
		}
		if err != nil || status != test.status || !strings.Contains(text, test.word) {
			t.Errorf("%s: %d, %.400s, %v, want %d with %q", reason, status, text, err, test.status, test.word)
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Success || len(answer.Errors) != 1 {
			t.Errorf("%s: it is answered %.400s, %v", reason, text, err)
		}
	}
	// A client that goes in the middle.
	gone := errors.New("the client goes")
	reader, writer := io.Pipe()
	go func() {
		_, _ = writer.Write(whole[:len(whole)/2])
		_ = writer.CloseWithError(gone)
	}()
	if _, _, err := put(t.Context(), kind, reader); !errors.Is(err, gone) {
		t.Errorf("a client that is gone got %v", err)
	}
	if left := s.stored(t, account+"/wrong/"); len(left) > 0 {
		t.Errorf("the store has %q", left)
	}
	if left := s.Hub.Kubectl(t, "get", "workerdeployments,secrets", "-n", team, "-o", "name"); strings.Contains(left, "wrong") {
		t.Errorf("there is %s", left)
	}
}

// upload is one that is wrong.
type upload struct {
	kind   string
	body   []byte
	status int
	word   string
}

func second(kind string, body []byte) upload { return upload{kind: kind, body: body} }

func (u upload) with(status int, word string) upload {
	u.status, u.word = status, word
	return u
}

func (s *tests) stored(t *testing.T, prefix string) []string {
	t.Helper()
	keys, err := s.store.Keys(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// twoAtOnce: one of them is served in the end, and the other one's developer knows it.
func (s *tests) twoAtOnce(t *testing.T) {
	s.project(t, "twice", "", saying("'zero'")).run(t, "deploy")
	type end struct {
		text string
		err  error
	}
	ends := make(chan end, 2)
	for _, text := range []string{"one", "two"} {
		p := s.project(t, "twice", "", saying("'"+text+"'"))
		go func() {
			_, err := p.as.Run(t.Context(), "deploy")
			ends <- end{text, err}
		}()
	}
	first, last := <-ends, <-ends
	if first.err != nil && last.err != nil {
		t.Fatalf("both fail: %v, %v", first.err, last.err)
	}
	for _, e := range []end{first, last} {
		if e.err != nil && !strings.Contains(e.err.Error(), "meanwhile") {
			t.Errorf("%s fails: %v", e.text, e.err)
		}
	}
	won := s.Hub.Kubectl(t, "get", "workerdeployment", "twice", "-n", team, "-o", "jsonpath={.metadata.annotations.workers\\.spokelet\\.io/deployment}")
	t.Logf("won: %s", won)
	testbed.Until(t, "both clusters serve one of them", testbed.Settle, func(ctx context.Context) error {
		var all error
		for _, text := range []string{"one", "two"} {
			err := errors.Join(s.served(ctx, s.Spokes[0], "twice", text), s.served(ctx, s.Spokes[1], "twice", text))
			if err == nil {
				return nil
			}
			all = errors.Join(all, err)
		}
		return all
	})
	s.project(t, "twice", "", saying("''")).run(t, "delete", "--force")
}

// storeIsAway: it is said, and what is served stays.
func (s *tests) storeIsAway(t *testing.T) {
	p := s.project(t, "kept", "", saying("'not yet'"))
	if err := s.store.Stop(); err != nil {
		t.Fatal(err)
	}
	p.fails(t, p.as, []string{"object store is not available"}, "deploy")
	p.still(t, "kept again")
	if err := s.store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.run(t, "deploy")
	p.until(t, "not yet")
	p.run(t, "delete", "--force")
}

// noErrors: the API and the operator had all rights that they need.
func (s *tests) noErrors(t *testing.T) {
	for _, deployment := range []string{"spokelet-workers", "spokelet-workers-api"} {
		logs := s.Hub.Kubectl(t, "logs", "-n", env.WorkersNamespace, "deployment/"+deployment, "--tail=-1")
		for line := range strings.Lines(logs) {
			if strings.Contains(line, "panic") || strings.Contains(line, "forbidden") || strings.Contains(line, "request failed") {
				t.Errorf("%s logs %s", deployment, line)
			}
		}
	}
}

func (s *tests) remove(t *testing.T) {
	for _, namespace := range []string{team, otherTeam} {
		s.Hub.Kubectl(t, "delete", "namespace", namespace, "--timeout=90s")
	}
	for _, spoke := range s.Spokes {
		testbed.Until(t, "the account's namespace is gone from "+spoke.Name, testbed.Settle, func(ctx context.Context) error {
			out, err := spoke.Command.Run(ctx, "get", "namespace", "workers-"+account, "--ignore-not-found", "-o", "name")
			if err == nil && out != "" {
				err = fmt.Errorf("there is %s", out)
			}
			return err
		})
		spoke.Kubectl(t, "delete", "clusterrole,clusterrolebinding", asker)
	}
	s.Hub.Kubectl(t, "delete", "clusterrole,clusterrolebinding", asker)
	if err := s.Env.UninstallWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
}
