// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/workers/access"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	"github.com/spokelet/spokelet/workers/upload"
)

// TestDocumentedRoutesAreServed, each of them and no other.
func TestDocumentedRoutesAreServed(t *testing.T) {
	raw, err := os.ReadFile("../../docs/reference/workers-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := yaml.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	var want []string
	for path, methods := range document.Paths {
		for method := range methods {
			if method != "parameters" {
				want = append(want, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(want)
	a := &API{mux: http.NewServeMux()}
	a.routes()
	slices.Sort(a.patterns)
	if diff := cmp.Diff(want, a.patterns); diff != "" {
		t.Errorf("(-documented +served):\n%s", diff)
	}
}

const hello = "/accounts/1234/workers/scripts/hello"

func TestForbiddenUserIsRefused(t *testing.T) {
	w := serve(t)
	for name, test := range map[string]struct {
		token, method, path string
		status, code        int
		words               string
	}{
		"no token":                   {"", http.MethodGet, "/user", http.StatusUnauthorized, 9106, "CLOUDFLARE_API_TOKEN"},
		"a token that is none":       {"nobody", http.MethodGet, "/user", http.StatusUnauthorized, 9109, "Invalid access token"},
		"an account of others":       {"eve", http.MethodGet, hello + "/deployments", http.StatusForbidden, 9109, "user eve may not get"},
		"an account of nobody":       {"jane", http.MethodGet, "/accounts/none/workers/scripts/hello/deployments", http.StatusForbidden, 9109, `no account "none"`},
		"who may look alone: deploy": {"joe", http.MethodPut, hello, http.StatusForbidden, 9109, "user joe may not update"},
		"who may look alone: upload": {"joe", http.MethodPost, hello + "/versions", http.StatusForbidden, 9109, "update"},
		"who may look alone: back":   {"joe", http.MethodPost, hello + "/deployments", http.StatusForbidden, 9109, "update"},
		"who may look alone: secret": {"joe", http.MethodPut, hello + "/secrets", http.StatusForbidden, 9109, "update"},
		"who may look alone: delete": {"joe", http.MethodDelete, "/accounts/1234/workers/services/hello", http.StatusForbidden, 9109, "delete"},
		"a script that leads away":   {"jane", http.MethodGet, "/accounts/1234/workers/scripts/..%2f..%2f5678/deployments", http.StatusBadRequest, 10021, "scriptName"},
		"an account that leads away": {"jane", http.MethodGet, "/accounts/..%2f1234/workers/scripts/hello/deployments", http.StatusForbidden, 9109, "no account"},
	} {
		w.ask(t, test.token, test.method, test.path, nil).refused(t, name, test.status, test.code, test.words)
	}
	if got := w.ask(t, "joe", http.MethodGet, hello+"/deployments", nil); !got.Success {
		t.Errorf("who may look alone gets %s", got.raw)
	}
}

func TestFailedReviewRefusesRequest(t *testing.T) {
	w := serve(t)
	w.reviewer.err = errors.Join(access.ErrUnavailable, errors.New("dial tcp 10.0.0.1:443: boom"))
	got := w.ask(t, "jane", http.MethodGet, "/user", nil)
	got.refused(t, "a hub that does not answer", http.StatusServiceUnavailable, 10013, "the hub is not available")
	if strings.Contains(got.raw, "10.0.0.1") {
		t.Errorf("an address is in %s", got.raw)
	}
}

func TestReviewsHappenInOrder(t *testing.T) {
	w := serve(t)
	for path, word := range map[string]string{
		"/user/tokens/verify": `"status":"active"`, "/user": `"email":"jane"`, "/accounts?page=1": `[{"id":"1234","name":"1234"}]`, "/memberships?page=1": `"account":{"id":"1234"`,
		"/accounts/1234/workers/subdomain": `"subdomain":"1234"`, "/accounts/1234/workers/services/hello": `"default_environment"`,
		"/accounts/1234/workers/workers/hello": `"url":"http://worker-hello.workers-1234.svc"`,
		hello + "/settings":                    `"bindings":[{"name":"GREETING","type":"plain_text","text":"hello"}]`,
		hello + "/secrets":                     `"result":[]`, hello + "/references": `"result":{}`,
	} {
		if got := w.ask(t, "jane", http.MethodGet, path, nil); !strings.Contains(got.raw, word) {
			t.Errorf("%s is answered %s, without %s", path, got.raw, word)
		}
	}
	if got := w.ask(t, "eve", http.MethodGet, "/memberships", nil); !strings.Contains(got.raw, `"result":[]`) {
		t.Errorf("who has no account is answered %s", got.raw)
	}
}

func TestMissingScriptHasCloudflareCodes(t *testing.T) {
	w := serve(t)
	for request, code := range map[string]int{
		"GET /accounts/1234/workers/services/none": 10090, "GET /accounts/1234/workers/scripts/none/secrets": 10007,
		"GET /accounts/1234/workers/scripts/none/deployments": 10007, "GET /accounts/1234/workers/scripts/none/settings": 10007,
		"GET /accounts/1234/workers/workers/none": 10007, "DELETE /accounts/1234/workers/services/none": 10007,
		"POST /accounts/1234/workers/scripts/none/versions": 10007, "POST /accounts/1234/workers/scripts/none/tails": 10007,
	} {
		method, path, _ := strings.Cut(request, " ")
		w.ask(t, "jane", method, path, nil).refused(t, request, http.StatusNotFound, code, "")
	}
	w.ask(t, "jane", http.MethodGet, hello+"/versions/none", nil).refused(t, "a version", http.StatusNotFound, 10222, "none")
	w.ask(t, "jane", http.MethodDelete, hello+"/secrets/NONE", nil).refused(t, "a secret", http.StatusNotFound, 10056, "NONE")
}

func TestUnsupportedProductsAreRefusedByName(t *testing.T) {
	w := serve(t)
	for request, words := range map[string]string{
		"POST /accounts/1234/storage/kv/namespaces": "KV", "POST /accounts/1234/d1/database": "D1", "GET /accounts/1234/r2/buckets": "R2",
		"GET /accounts/1234/queues?page=1": "queues", "GET /accounts/1234/workflows": "workflows", "GET /zones?name=example.com": "zones",
		"PUT " + hello + "/schedules": "cron", "PUT " + hello + "/routes": "routes", "POST " + hello + "/domains/changeset": "custom domains",
		"POST " + hello + "/assets-upload-session": "static assets", "GET /accounts/1234/pages/projects": "Pages", "GET " + hello + "/content": "Workers API",
		"POST /accounts/1234/workers/durable_objects/namespaces": "Durable Objects", "GET /accounts/1234/ai-search/namespaces": "AI Search",
		"GET /accounts/1234/agent-memory/namespaces/m": "Agent Memory", "GET /accounts/1234/flagship/apps": "Flagship",
		"GET /accounts/1234/workers/dispatch/namespaces/n": "dispatch namespaces",
	} {
		method, path, _ := strings.Cut(request, " ")
		w.ask(t, "jane", method, path, nil).refused(t, request, http.StatusForbidden, 10015, "not supported by Spokelet: ")
		w.ask(t, "jane", method, path, nil).refused(t, request, http.StatusForbidden, 10015, words)
	}
	w.ask(t, "jane", http.MethodGet, "/telepathy", nil).refused(t, "nothing of the kind", http.StatusNotFound, 7003, "/client/v4/telepathy")
}

func TestTrafficSplitIsRefused(t *testing.T) {
	w := serve(t)
	for _, versions := range []string{
		`[{"version_id":"a","percentage":30},{"version_id":"b","percentage":70}]`, `[{"version_id":"a","percentage":50}]`, `[]`, `null`,
	} {
		w.ask(t, "jane", http.MethodPost, hello+"/deployments", strings.NewReader(`{"versions":`+versions+`}`)).
			refused(t, versions, http.StatusBadRequest, 10015, "split")
	}
	w.ask(t, "jane", http.MethodPost, hello+"/deployments", strings.NewReader("[")).refused(t, "no JSON", http.StatusBadRequest, 10021, "JSON")
}

// form is an upload of a module.
func form(t *testing.T, metadata, content string) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	err := w.WriteField("metadata", metadata)
	part, partErr := w.CreatePart(map[string][]string{
		"Content-Disposition": {`form-data; name="index.js"; filename="index.js"`}, "Content-Type": {"application/javascript+module"},
	})
	if err := errors.Join(err, partErr); err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return body, w.FormDataContentType()
}

const metadata = `{"main_module":"index.js","compatibility_date":"2026-01-15","bindings":[{"name":"KEY","type":"secret_text","text":"hunter2"}],"annotations":{"workers/tag":"v1"}}`

func TestUploadIsStoredBeforeAnswer(t *testing.T) {
	w := serve(t)
	body, kind := form(t, metadata, "export default {};")
	got := w.ask(t, "jane", http.MethodPost, hello+"/versions", body, "Content-Type", kind)
	result, _ := got.Result.(map[string]any)
	id, _ := result["id"].(string)
	if !got.Success || w.bucket.Objects["1234/hello/"+id+"/index.js"] != "export default {};" || w.bucket.Objects["_versions/1234/hello/"+id+".json"] == "" {
		t.Fatalf("%s, and the store has %q", got.raw, w.bucket.Objects)
	}
	if again := w.ask(t, "joe", http.MethodGet, hello+"/versions/"+id, nil); !strings.Contains(again.raw, `"author_email":"jane"`) || !strings.Contains(again.raw, `{"name":"KEY","type":"secret_text"}`) {
		t.Errorf("the version is %s", again.raw)
	}
	for key, content := range w.bucket.Objects {
		if strings.Contains(content, "hunter2") {
			t.Errorf("the value of a secret is in %s", key)
		}
	}
	var secrets corev1.SecretList
	if err := w.hub.List(t.Context(), &secrets); err != nil || len(secrets.Items) != 1 || string(secrets.Items[0].Data["KEY"]) != "hunter2" {
		t.Errorf("the Secrets are %+v, %v", secrets.Items, err)
	}
	var wd deploymentv1alpha1.WorkerDeploymentList
	if err := w.hub.List(t.Context(), &wd); err != nil || len(wd.Items) != 1 || wd.Items[0].Spec.Template.SecretRef != "" {
		t.Errorf("an upload changes what is deployed: %+v, %v", wd.Items, err)
	}
}

func TestInvalidUploadIsNotStored(t *testing.T) {
	w := serve(t, func(c *Config) { c.Limits = upload.Limits{MaxModules: 2, MaxBytes: 1 << 20} })
	good, kind := form(t, metadata, "export default {};")
	cut := good.Bytes()[:good.Len()-100]
	large, largeKind := form(t, metadata, strings.Repeat("x", 25<<20))
	second, secondKind := form(t, metadata, strings.Repeat("x", 2<<20))
	other, otherKind := form(t, `{"main_module":"other.js"}`, "x")
	for name, test := range map[string]struct {
		body         []byte
		kind         string
		status, code int
		words        string
	}{
		"no form":                 {[]byte("{}"), "application/json", http.StatusBadRequest, 10021, "multipart/form-data"},
		"a form that is cut":      {cut, kind, http.StatusBadRequest, 10021, ""},
		"25 MiB":                  {large.Bytes(), largeKind, http.StatusRequestEntityTooLarge, 10027, "25.0 MiB, and the limit of a script is 1.0 MiB"},
		"more than the limit":     {second.Bytes(), secondKind, http.StatusRequestEntityTooLarge, 10027, "MiB, which is the limit"},
		"an entry that is not in": {other.Bytes(), otherKind, http.StatusBadRequest, 10021, "other.js"},
	} {
		for _, route := range []string{"PUT " + hello, "POST " + hello + "/versions"} {
			method, path, _ := strings.Cut(route, " ")
			w.ask(t, "jane", method, path, bytes.NewReader(test.body), "Content-Type", test.kind).refused(t, name, test.status, test.code, test.words)
		}
	}
	if len(w.bucket.Objects) > 0 {
		t.Errorf("the store has %q", w.bucket.Objects)
	}
}

func TestUnavailableStoreIsReported(t *testing.T) {
	w := serve(t)
	w.bucket.FailPuts = []string{"/"}
	body, kind := form(t, metadata, "export default {};")
	w.ask(t, "jane", http.MethodPut, hello, body, "Content-Type", kind).
		refused(t, "a store that is away", http.StatusServiceUnavailable, 10013, "the object store is not available")
}

func TestSecretTypeIsChecked(t *testing.T) {
	w := serve(t)
	for body, words := range map[string]string{
		`{"name":"A","text":"hunter2","type":"secret_key"}`:    `type "secret_key" is not supported`,
		`{"name":"","text":"hunter2","type":"secret_text"}`:    "a secret has no name",
		`{"name":"A","text":["hunter2"],"type":"secret_text"}`: "not the JSON of a secret",
		`hunter2`: "not the JSON of a secret",
	} {
		got := w.ask(t, "jane", http.MethodPut, hello+"/secrets", strings.NewReader(body))
		if got.status != http.StatusBadRequest || !strings.Contains(got.raw, strings.ReplaceAll(words, `"`, `\"`)) || strings.Contains(got.raw, "hunter2") {
			t.Errorf("%s is answered %d %s", body, got.status, got.raw)
		}
	}
	for body, path := range map[string]string{
		`{"secrets":"hunter2"}`: hello + "/secrets-bulk", `{}`: hello + "/secrets-bulk", `[]`: "/accounts/1234/workers/workers/hello/versions/latest",
	} {
		w.ask(t, "jane", http.MethodPatch, path, strings.NewReader(body)).refused(t, body, http.StatusBadRequest, 10021, "change of secrets")
	}
}

func TestTailURLHasRequestedHost(t *testing.T) {
	w := serve(t)
	got := w.ask(t, "joe", http.MethodPost, hello+"/tails", strings.NewReader(`{"filters":[{"outcome":["ok"]}]}`), "Content-Type", "text/plain")
	result, _ := got.Result.(map[string]any)
	url, _ := result["url"].(string)
	if host := strings.TrimPrefix(w.url, "https://"); !strings.HasPrefix(url, "wss://"+host+"/tails/") || result["expires_at"] == "" {
		t.Errorf("the tail is %s", got.raw)
	}
	w.ask(t, "joe", http.MethodPost, hello+"/tails", strings.NewReader(`{"filters":[{"telepathy":1}]}`)).
		refused(t, "a filter of nobody", http.StatusBadRequest, 10021, "telepathy")
	w.ask(t, "joe", http.MethodPost, hello+"/tails", nil)
	w.ask(t, "joe", http.MethodPost, hello+"/tails", nil).refused(t, "too many tails", http.StatusTooManyRequests, 10429, "")
	id, _ := result["id"].(string)
	if got := w.ask(t, "joe", http.MethodDelete, hello+"/tails/"+id, nil); !got.Success {
		t.Errorf("its end is answered %s", got.raw)
	}
	w.ask(t, "joe", http.MethodDelete, hello+"/tails/"+id, nil).refused(t, "a tail that is gone", http.StatusNotFound, 7003, "")
}
