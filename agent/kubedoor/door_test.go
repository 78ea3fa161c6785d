// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/impersonation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const agentToken = "agent-token"

// apiServer is a spoke's API server and what it was asked.
type apiServer struct {
	*httptest.Server
	seen chan *http.Request
}

func newAPIServer(t *testing.T, answer http.HandlerFunc) *apiServer {
	t.Helper()
	a := &apiServer{seen: make(chan *http.Request, 16)}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.seen <- r.Clone(t.Context())
		answer(w, r)
	}))
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func (a *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return &rest.Config{Host: a.URL, BearerToken: agentToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// one is the only request that has arrived.
func (a *apiServer) one(t *testing.T) *http.Request {
	t.Helper()
	select {
	case r := <-a.seen:
		return r
	default:
		t.Fatal("nothing was forwarded")
		return nil
	}
}

func (a *apiServer) none(t *testing.T) {
	t.Helper()
	select {
	case r := <-a.seen:
		t.Errorf("%s %s was forwarded", r.Method, r.URL)
	default:
	}
}

// open makes a door to the API server and serves it.
func open(t *testing.T, cfg Config) *httptest.Server {
	t.Helper()
	cfg.Enabled = true
	cfg.Logger = logr.Discard()
	return serve(t, cfg)
}

func serve(t *testing.T, cfg Config) *httptest.Server {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(d)
	t.Cleanup(func() {
		s.Close()
		utilnet.CloseIdleConnectionsFor(d.upstream.pool)
	})
	return s
}

// alice is the header of an ordinary caller.
func alice() http.Header {
	h := http.Header{}
	impersonation.Set(h, impersonation.Principal{Kind: impersonation.User, User: "alice", Groups: []string{"dev", "system:masters", "system:authenticated"}})
	return h
}

func get(t *testing.T, s *httptest.Server, path string, h http.Header) *http.Response {
	t.Helper()
	return do(t, s, http.MethodGet, path, h)
}

func do(t *testing.T, s *httptest.Server, method, path string, h http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func checkStatus(t *testing.T, reason string, res *http.Response, code int, reasonCode metav1.StatusReason, message string) {
	t.Helper()
	var s metav1.Status
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatalf("%s: answer is no Status: %v", reason, err)
	}
	if res.StatusCode != code || int(s.Code) != code || s.Reason != reasonCode || s.Kind != "Status" || !strings.Contains(s.Message, message) {
		t.Errorf("%s: answered %d %+v; want %d %s naming %q", reason, res.StatusCode, s, code, reasonCode, message)
	}
}

func TestDoorImpersonatesCaller(t *testing.T) {
	api := newAPIServer(t, ok)
	s := open(t, Config{Rest: api.config(), Groups: []string{"dev"}})
	h := alice()
	h["Audit-Id"] = []string{"4711"}
	h["Traceparent"] = []string{"00-1-2-01"}
	h["Accept"] = []string{"application/json;as=Table"}
	h["Authorization"] = []string{"Bearer forged"}
	h["X-Remote-User"] = []string{"root"}
	res := get(t, s, "/api/v1/namespaces/a/pods/b%20c?labelSelector=x%3Dy", h)
	if body, _ := io.ReadAll(res.Body); string(body) != "ok" {
		t.Fatalf("answered %q", body)
	}
	r := api.one(t)
	if r.ProtoMajor != 2 {
		t.Errorf("forwarded over %s; want the pool's HTTP/2", r.Proto)
	}
	if r.URL.Path != "/api/v1/namespaces/a/pods/b c" || r.URL.RawQuery != "labelSelector=x%3Dy" {
		t.Errorf("forwarded %q ? %q", r.URL.Path, r.URL.RawQuery)
	}
	want := http.Header{
		"Accept": {"application/json;as=Table"}, "Audit-Id": {"4711"}, "Traceparent": {"00-1-2-01"},
		"Authorization": {"Bearer " + agentToken}, "Impersonate-User": {"hub:alice"}, "Impersonate-Group": {"hub:dev"},
	}
	r.Header.Del("User-Agent")
	r.Header.Del("Accept-Encoding")
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("forwarded header (-want +got):\n%s", diff)
	}
}

func TestDoorRefuses(t *testing.T) {
	namespaced := Config{Enabled: true, Namespaces: []string{"a", "b"}}
	enabled := Config{Enabled: true}
	asUser := func(p impersonation.Principal) http.Header {
		h := http.Header{}
		impersonation.Set(h, p)
		return h
	}
	cases := map[string]struct {
		reason  string
		cfg     Config
		method  string
		path    string
		header  http.Header
		code    int
		message string
	}{
		"disabled":            {reason: "the owner has closed the door", path: "/version", header: alice(), code: 403, message: "not enabled"},
		"nobody":              {reason: "a request without caller is nobody's", cfg: enabled, path: "/version", code: 403, message: "not stated"},
		"two kinds":           {reason: "one of them is forged", cfg: enabled, path: "/version", header: http.Header{impersonation.HeaderKind: {"user", "node"}, impersonation.HeaderUser: {"a"}}, code: 403, message: "ambiguously"},
		"empty user":          {reason: "an empty name is nobody", cfg: enabled, path: "/version", header: http.Header{impersonation.HeaderKind: {"user"}, impersonation.HeaderUser: {""}}, code: 403, message: "invalid"},
		"control character":   {reason: "readers differ on it", cfg: enabled, path: "/version", header: http.Header{impersonation.HeaderKind: {"user"}, impersonation.HeaderUser: {"a\tb"}}, code: 403, message: "control"},
		"forged prefix":       {reason: "it reads as a mapped name", cfg: enabled, path: "/version", header: asUser(impersonation.Principal{Kind: impersonation.User, User: "hub:alice"}), code: 403, message: "prefix"},
		"anonymous":           {reason: "it would become authenticated", cfg: enabled, path: "/version", header: asUser(impersonation.Principal{Kind: impersonation.User, User: "system:anonymous"}), code: 403, message: "anonymous"},
		"node":                {reason: "nothing is served to it", cfg: enabled, path: "/api/v1/nodes", header: asUser(impersonation.Principal{Kind: impersonation.Node}), code: 403, message: "node"},
		"encoded slash":       {reason: "one path is checked and forwarded", cfg: enabled, path: "/api/v1/namespaces%2fa", header: alice(), code: 400, message: "canonical"},
		"dot segments":        {reason: "one path is checked and forwarded", cfg: enabled, path: "/api/v1/%2e%2e/x", header: alice(), code: 400, message: "canonical"},
		"half an upgrade":     {reason: "a reader behind might upgrade", cfg: enabled, path: "/version", header: merge(alice(), http.Header{"Upgrade": {"websocket"}}), code: 400, message: "upgrade"},
		"other namespace":     {reason: "the owner allows two", cfg: namespaced, path: "/api/v1/namespaces/kube-system/secrets", header: alice(), code: 403, message: `"kube-system"`},
		"all namespaces":      {reason: "it shows the others too", cfg: namespaced, path: "/api/v1/pods", header: alice(), code: 403, message: "within namespaces"},
		"cluster-scoped":      {reason: "it lies in no namespace", cfg: namespaced, path: "/api/v1/nodes", header: alice(), code: 403, message: "within namespaces"},
		"metrics":             {reason: "it lies in no namespace", cfg: namespaced, path: "/metrics", header: alice(), code: 403, message: "within namespaces"},
		"delete namespace":    {reason: "a Namespace is cluster-scoped", cfg: namespaced, method: http.MethodDelete, path: "/api/v1/namespaces/a", header: alice(), code: 403, message: "itself"},
		"finalize namespace":  {reason: "a Namespace is cluster-scoped", cfg: namespaced, method: http.MethodPut, path: "/api/v1/namespaces/a/finalize", header: alice(), code: 403, message: "itself"},
		"legacy watch":        {reason: "the old form of a watch is checked too", cfg: namespaced, path: "/api/v1/watch/namespaces/c/pods", header: alice(), code: 403, message: `"c"`},
		"namespace elsewhere": {reason: "only the API server's layout counts", cfg: namespaced, path: "/logs/namespaces/a/x", header: alice(), code: 403, message: "within namespaces"},
		"post to discovery":   {reason: "discovery is read", cfg: namespaced, method: http.MethodPost, path: "/apis/apps/v1", header: alice(), code: 403, message: "within namespaces"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t, ok)
			tc.cfg.Rest = api.config()
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			res := do(t, serve(t, tc.cfg), method, tc.path, tc.header)
			reason := metav1.StatusReasonForbidden
			if tc.code == http.StatusBadRequest {
				reason = metav1.StatusReasonBadRequest
			}
			checkStatus(t, tc.reason, res, tc.code, reason, tc.message)
			api.none(t)
		})
	}
}

func merge(into, from http.Header) http.Header {
	maps.Copy(into, from)
	return into
}

func TestDoorForwardsAllowedNamespaces(t *testing.T) {
	for _, path := range []string{
		"/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3/apis/apps/v1",
		"/api/v1/namespaces/a", "/api/v1/namespaces/a/pods", "/apis/apps/v1/namespaces/b/deployments/x/status",
		"/api/v1/watch/namespaces/a/pods",
	} {
		t.Run(path, func(t *testing.T) {
			api := newAPIServer(t, ok)
			get(t, open(t, Config{Rest: api.config(), Namespaces: []string{"a", "b"}}), path, alice())
			if r := api.one(t); r.URL.Path != path {
				t.Errorf("forwarded %q", r.URL.Path)
			}
		})
	}
}

func TestDoorForwardsAllowedGroups(t *testing.T) {
	cases := map[string]struct {
		reason string
		groups []string
		want   []string
	}{
		"unset":  {reason: "a group that the owner did not name gives nobody a right"},
		"any":    {reason: "the owner may leave it to the hub, but for the hub's own", groups: []string{anyGroup}, want: []string{"hub:dev", "hub:ops"}},
		"listed": {reason: "the list is a ceiling", groups: []string{"ops", "system:masters"}, want: []string{"hub:ops"}},
		"none":   {reason: "nothing on the list is the caller's", groups: []string{"audit"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t, ok)
			h := http.Header{}
			impersonation.Set(h, impersonation.Principal{Kind: impersonation.User, User: "alice", Groups: []string{"dev", "ops", "system:masters", "hub:dev"}})
			get(t, open(t, Config{Rest: api.config(), Groups: tc.groups}), "/version", h)
			if diff := cmp.Diff(tc.want, api.one(t).Header["Impersonate-Group"]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDoorAbortsCutAnswer(t *testing.T) {
	for _, length := range []string{"", "1000"} {
		t.Run("content length "+length, func(t *testing.T) {
			api := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
			s := open(t, Config{Rest: api.config(), Groups: []string{"dev"}})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/pods", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = alice()
			res, err := s.Client().Do(r)
			if err != nil {
				return // cut before its first bytes were passed on
			}
			defer func() { _ = res.Body.Close() }()
			if got, err := io.ReadAll(res.Body); err == nil {
				t.Errorf("read %q and a clean end", got)
			}
		})
	}
}

func TestDoorFlushesEventsAtOnce(t *testing.T) {
	next := make(chan struct{})
	api := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			_, _ = io.WriteString(w, "event\n")
			_ = http.NewResponseController(w).Flush()
			if i < 2 {
				<-next
			}
		}
	})
	res := get(t, open(t, Config{Rest: api.config()}), "/api/v1/pods?watch=1", alice())
	lines := bufio.NewScanner(res.Body)
	for range 2 {
		if !lines.Scan() {
			t.Fatal("no event")
		}
		next <- struct{}{} // the next event is sent once this one was seen
	}
	if !lines.Scan() || lines.Scan() || lines.Err() != nil {
		t.Errorf("watch did not end cleanly: %v", lines.Err())
	}
}

func TestDoorReportsUnreachableAPIServer(t *testing.T) {
	api := newAPIServer(t, ok)
	cfg := api.config()
	api.Close()
	s := open(t, Config{Rest: cfg})
	checkStatus(t, "a dead API server is unavailable", get(t, s, "/version", alice()), 503, metav1.StatusReasonServiceUnavailable, "API server")
	h := merge(alice(), http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}})
	checkStatus(t, "for upgrades too", get(t, s, "/exec", h), 503, metav1.StatusReasonServiceUnavailable, "API server")
}

func TestDoorForwardsUpgrade(t *testing.T) {
	api := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("upgrade over %s", r.Proto)
		}
		c, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.CopyN(c, brw, 4)
	})
	s := open(t, Config{Rest: api.config(), Groups: []string{"dev"}})
	c, br := dialUpgrade(t, s, "/api/v1/namespaces/a/pods/b/exec?command=sh", alice())
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %v, %v", res, err)
	}
	_, _ = io.WriteString(c, "ping")
	if got, err := io.ReadAll(br); err != nil || string(got) != "ping" {
		t.Errorf("read %q, %v", got, err)
	}
	r := api.one(t)
	if r.Header.Get("Impersonate-User") != "hub:alice" || r.Header.Get("Authorization") != "Bearer "+agentToken || r.URL.RawQuery != "command=sh" {
		t.Errorf("forwarded %s %v", r.URL, r.Header)
	}
}

func dialUpgrade(t *testing.T, s *httptest.Server, path string, h http.Header) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var b strings.Builder
	b.WriteString("GET " + path + " HTTP/1.1\r\nHost: kube\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n")
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, b.String()+"\r\n")
	return c, bufio.NewReader(c)
}

func TestDoorClosesConnectionAfterRefusedUpgrade(t *testing.T) {
	cases := map[string]struct {
		reason  string
		path    string
		header  http.Header
		code    int
		forward bool
	}{
		"by the API server": {reason: "its refusal is passed on", path: "/exec", header: alice(), code: 403, forward: true},
		"by the door":       {reason: "nothing is forwarded", path: "/exec", code: 403},
		"for its path":      {reason: "nothing is forwarded", path: "/a//b", header: alice(), code: 400},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
			c, br := dialUpgrade(t, open(t, Config{Rest: api.config()}), tc.path, tc.header)
			_, _ = io.WriteString(c, "GET /secret HTTP/1.1\r\nHost: kube\r\nSpokelet-Principal: user\r\nSpokelet-Principal-User: root\r\n\r\n")
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if res.StatusCode != tc.code {
				t.Errorf("%s: answered %d, want %d", tc.reason, res.StatusCode, tc.code)
			}
			if second, err := http.ReadResponse(br, nil); err == nil {
				t.Errorf("%s: the pipelined request was answered: %d", tc.reason, second.StatusCode)
			}
			if tc.forward {
				api.one(t)
			}
			api.none(t)
		})
	}
}

func TestConfigValidateRefusesUnsafe(t *testing.T) {
	cases := map[string]struct {
		reason string
		cfg    Config
	}{
		"pods of nobody":       {reason: "the agent's own account may impersonate anyone", cfg: Config{Rest: &rest.Config{}, Pods: located{}}},
		"no rest config":       {reason: "there is nowhere to go", cfg: Config{}},
		"impersonating":        {reason: "it would fight with the door's own", cfg: Config{Rest: &rest.Config{Impersonate: rest.ImpersonationConfig{UserName: "x"}}}},
		"system prefix":        {reason: "users would become components", cfg: Config{Rest: &rest.Config{}, UserPrefix: "system:"}},
		"prefix of a word":     {reason: "hubalice may be a user of the spoke", cfg: Config{Rest: &rest.Config{}, UserPrefix: "hub"}},
		"API server's address": {reason: "it cannot be reached", cfg: Config{Rest: &rest.Config{Host: "http://%zz"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tc.cfg); err == nil {
				t.Errorf("%s: accepted", tc.reason)
			}
		})
	}
}

func TestUpgradesShareTLSConfigUntilFilesChange(t *testing.T) {
	api := newAPIServer(t, func(http.ResponseWriter, *http.Request) {})
	cfg := api.config()
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(pem []byte) {
		if err := os.WriteFile(file, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(cfg.CAData)
	once := &perRequestTransport{cfg: &rest.Config{Host: cfg.Host, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}}
	made := func() *tls.Config {
		c, err := once.tlsConfig()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := made()
	if made() != first {
		t.Error("an unchanged file was taken for another")
	}
	write(append([]byte("# rotated\n"), cfg.CAData...))
	if made() == first {
		t.Error("a file that was rotated is not read")
	}
}
