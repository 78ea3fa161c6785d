// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/spokelet/spokelet/workers/access"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/controllers"
	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/store/storetest"
	"github.com/spokelet/spokelet/workers/tail"
	"github.com/spokelet/spokelet/workers/version"
)

// tokenOf is a token for the API, of a user. Of one user there are several: what follows a # is
// no part of the name.
func tokenOf(name string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode(fmt.Appendf(nil, `{"aud":[%q],"sub":%q}`, access.Audience, name)) + ".c2lnbmVk"
}

func nameOf(token string) string {
	var claims struct {
		Subject string `json:"sub"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	name, _, _ := strings.Cut(claims.Subject, "#")
	return name
}

// reviewer is a fake of the hub's reviews: what users may do is a list of verbs for each, in his
// account.
type reviewer struct {
	rights map[string]string
	err    error
	seen   chan struct{} // gets one for each token, where it is not nil
	slow   time.Duration // how long a review of rights takes

	mu      sync.Mutex
	reviews int // guarded by mu
}

func (r *reviewer) Authenticate(_ context.Context, token string) (authenticationv1.UserInfo, error) {
	r.mu.Lock()
	r.reviews++
	r.mu.Unlock()
	if r.seen != nil {
		r.seen <- struct{}{}
	}
	if r.err != nil {
		return authenticationv1.UserInfo{}, r.err
	}
	name := nameOf(token)
	if _, known := r.rights[name]; !known {
		return authenticationv1.UserInfo{}, access.ErrInvalidToken
	}
	return authenticationv1.UserInfo{Username: name, UID: "uid-" + name}, nil
}

func (r *reviewer) Authorize(ctx context.Context, user authenticationv1.UserInfo, namespace, verb string) error {
	select {
	case <-time.After(r.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	mine := "team-a"
	if user.Username == "bob" {
		mine = "team-b"
	}
	if namespace == mine && strings.Contains(r.rights[user.Username], verb) {
		return nil
	}
	return access.ErrForbidden
}

// accounts are that of all users but bob, and that of bob.
type accounts struct{}

func (accounts) Namespace(account string) (string, bool) {
	namespace, ok := map[string]string{"1234": "team-a", "5678": "team-b"}[account]
	return namespace, ok
}

func (accounts) ListReadable(ctx context.Context, user authenticationv1.UserInfo, rights access.Authorizer) ([]string, error) {
	if rights.Authorize(ctx, user, "team-a", "list") == nil {
		return []string{"1234"}, nil
	}
	return nil, nil
}

// world is an API with one account, which has the script hello.
type world struct {
	api      *API
	url      string
	client   *http.Client
	reviewer *reviewer
	bucket   *storetest.Memory
	hub      client.Client
}

// serve starts an API as it is served, by TLS.
func serve(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	scheme, err := controllers.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is applied here: a tracker without field managers is many times faster.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	hub := withOperator(fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithIndex(&deploymentv1alpha1.WorkerDeployment{}, "spec.template.scriptName", func(o client.Object) []string {
		return []string{o.(*deploymentv1alpha1.WorkerDeployment).Spec.Template.ScriptName}
	}).WithObjects(&deploymentv1alpha1.WorkerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "hello", UID: "0e9f0f0a-0000-4000-8000-000000000000"},
		Spec: deploymentv1alpha1.WorkerDeploymentSpec{Template: release.Script{
			ScriptName: "hello", CompatibilityDate: "2026-01-15", ScriptURLs: []string{"s3://workers/1234/hello/1"},
			Bindings: []release.Binding{{Name: "GREETING", Type: "plain_text", Text: "hello"}},
		}},
	}).Build())
	w := &world{
		reviewer: &reviewer{rights: map[string]string{"jane": "get list update delete", "joe": "get list", "eve": "", "bob": "get list update delete"}},
		bucket:   storetest.NewMemory(), hub: hub,
	}
	tails, err := tail.New(tail.Config{Kube: &rest.Config{Host: "https://127.0.0.1:1"}, Limits: tail.Limits{MaxPerUser: 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tails.Close)
	versions := version.NewRepository(w.bucket, w.bucket, "workers")
	config := Config{
		Reviewer: w.reviewer, Accounts: accounts{}, Tails: tails, Log: logr.Discard(),
		Deployer: deployer.New(deployer.Config{Client: hub, Versions: versions, History: versions, Bucket: "workers"}),
	}
	for _, apply := range change {
		apply(&config)
	}
	api, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Listener = Listen(server.Listener)
	server.Config = NewServer(api, nil, logr.Discard())
	server.TLS = server.Config.TLSConfig
	server.TLS.GetCertificate = nil // httptest has one
	server.StartTLS()
	t.Cleanup(server.Close)
	w.api, w.url, w.client = api, server.URL, server.Client()
	return w
}

// answer is what a client reads.
type answer struct {
	status int
	envelope
	raw string
}

// ask sends a request with a token; body may be nil.
func (w *world) ask(t *testing.T, token, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, w.url+"/client/v4"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+tokenOf(token))
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, raw: string(raw)}
	if err := json.Unmarshal(raw, &a.envelope); err != nil {
		t.Fatalf("%s %s is answered %q: %v", method, path, raw, err)
	}
	if a.Success != (a.status == http.StatusOK) || a.Success != (len(a.Errors) == 0) {
		t.Errorf("%s %s: an answer that is not of one mind: %d %s", method, path, a.status, raw)
	}
	return a
}

// refused checks that an answer is an error with a status, a code and words.
func (a answer) refused(t *testing.T, what string, status, code int, words string) {
	t.Helper()
	if a.status != status || len(a.Errors) != 1 || a.Errors[0].Code != code || !strings.Contains(a.Errors[0].Message, words) {
		t.Errorf("%s: got %d %s, want %d, code %d with %q", what, a.status, a.raw, status, code, words)
	}
}

// raw sends bytes and returns what comes until the connection is closed.
func (w *world) raw(t *testing.T, text string) string {
	t.Helper()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: w.client.Transport.(*http.Transport).TLSClientConfig}).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // of one that is kept
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_, _ = io.Copy(&out, conn)
	return out.String()
}
