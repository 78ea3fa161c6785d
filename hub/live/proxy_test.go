// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/spokelet/spokelet/tunnel"
)

func TestProxySendsCallerIdentity(t *testing.T) {
	seen := make(chan *http.Request, 1)
	a := newTestAgent(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(t.Context())
		w.Header().Set("Cache-Control", "theirs")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "answer")
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	res := s.do(t, http.MethodPost, livePath+"/clusters/c1/proxy/api/v1/namespaces/a/pods/b%20c?dryRun=All&x=%2f", "alice",
		http.Header{"Cookie": {"secret"}, "Audit-Id": {"4711"}, "Traceparent": {"00-1-2-01"}, "X-Remote-User": {"root"}}, "payload")
	if body, _ := io.ReadAll(res.Body); string(body) != "answer" || res.StatusCode != http.StatusTeapot {
		t.Fatalf("answered %d %q", res.StatusCode, body)
	}
	if got := res.Header["Cache-Control"]; len(got) != 1 || got[0] != "theirs" {
		t.Errorf("Cache-Control = %q, want the cluster's alone", got)
	}
	r := <-seen
	if got := callerSeen(r); got != "alice devs,system:authenticated" {
		t.Errorf("asked as %q", got)
	}
	if r.URL.Path != "/api/v1/namespaces/a/pods/b c" || r.URL.RawQuery != "dryRun=All&x=%2f" || r.Host != kubeDoor || r.Method != http.MethodPost {
		t.Errorf("asked %s %s %q ? %q", r.Method, r.Host, r.URL.Path, r.URL.RawQuery)
	}
	for _, k := range []string{"Authorization", "Cookie", "X-Remote-User"} {
		if v, ok := r.Header[k]; ok {
			t.Errorf("%s = %q left the hub", k, v)
		}
	}
	if r.Header.Get("Audit-Id") != "4711" || r.Header.Get("Traceparent") == "" {
		t.Errorf("audit id %q and trace %q do not travel along", r.Header.Get("Audit-Id"), r.Header.Get("Traceparent"))
	}
}

func TestProxyRefusesRequests(t *testing.T) {
	f := &fleet{clusters: map[string]Session{
		"up": brokenSession{err: fmt.Errorf("must not be asked")}, "down": nil,
		"busy": brokenSession{err: &tunnel.BusyError{Cluster: "busy", Door: kubeDoor, Limit: 1}}, "lost": brokenSession{err: tunnel.ErrLost},
	}}
	rights := func(r authorizationv1.SubjectAccessReviewSpec) bool { return r.User != "mallory" }
	s := start(t, f, rights, Limits{})
	cases := map[string]struct {
		reason  string
		user    string
		path    string
		code    int
		message string
		retry   string
	}{
		"not connected":   {reason: "an error at once that names cluster and reason", user: "alice", path: "/clusters/down/proxy/api", code: 503, message: `cluster "down": not connected: connection lost`},
		"unknown":         {reason: "there is no such cluster", user: "alice", path: "/clusters/nope/proxy/api", code: 404, message: `"nope"`},
		"busy":            {reason: "trying again helps", user: "alice", path: "/clusters/busy/proxy/api", code: 429, message: "too many streams", retry: "1"},
		"cut":             {reason: "the way broke", user: "alice", path: "/clusters/lost/proxy/api", code: 502, message: `cluster "lost": connection lost`},
		"forbidden":       {reason: "the hub's API server says so", user: "mallory", path: "/clusters/up/proxy/api", code: 403, message: "mallory"},
		"odd name":        {reason: "readers differ on control characters", user: "al\u0085ice", path: "/clusters/up/proxy/api", code: 403, message: "control characters"},
		"trick":           {reason: "one path is authorized and forwarded", user: "alice", path: "/clusters/up/proxy/api/%2e%2e/x", code: 400, message: "canonical"},
		"encoded cluster": {reason: "one cluster is authorized and asked", user: "alice", path: "/clusters/u%70/proxy//api", code: 400, message: "canonical"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			res := s.do(t, http.MethodGet, livePath+tc.path, tc.user, http.Header{"Accept": {"application/json"}})
			raw, _ := io.ReadAll(res.Body)
			status := readStatus(t, raw)
			if res.StatusCode != tc.code || !strings.Contains(status.Message, tc.message) || res.Header.Get("Retry-After") != tc.retry {
				t.Errorf("%s: answered %d %q, retry after %q; want %d naming %q", tc.reason, res.StatusCode, status.Message, res.Header.Get("Retry-After"), tc.code, tc.message)
			}
		})
	}
}

func TestProxyAbortsCutResponse(t *testing.T) {
	a := newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	res := s.do(t, http.MethodGet, livePath+"/clusters/c1/proxy/api/v1/pods", "alice", nil)
	if got, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("read %q and a clean end", got)
	}
}

func TestProxyFlushesWatchEvents(t *testing.T) {
	next := make(chan struct{})
	a := newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "event\n")
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	res := s.do(t, http.MethodGet, livePath+"/clusters/c1/proxy/api/v1/pods?watch=1", "alice", nil)
	lines := bufio.NewScanner(res.Body)
	for range 3 {
		if !lines.Scan() {
			t.Fatal("no event")
		}
		next <- struct{}{} // the next event is sent once this one was seen
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("watch did not end cleanly: %v", lines.Err())
	}
}

func TestProxyStreamsLargeResponse(t *testing.T) {
	const size = 100 << 20
	a := newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 64<<10)
		for range size / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	res := s.do(t, http.MethodGet, livePath+"/clusters/c1/proxy/big", "alice", nil)
	var most uint64
	var read int64
	for read < size {
		n, err := io.CopyN(io.Discard, res.Body, 10<<20)
		read += n
		if err != nil {
			break
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}
	// Two HTTP/2 windows of 4 MiB, ends included, and what the server itself is.
	if read != size || most > 64<<20 {
		t.Errorf("read %d of %d bytes with a heap of up to %d MiB", read, size, most>>20)
	}
}

// dial opens a connection as kubectl does for an upgrade, and sends.
func (s *liveServer) dial(t *testing.T, request string) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	c, err := dialer.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c.(*tls.Conn), bufio.NewReader(c)
}

func upgradeRequest(user, path, extra string) string {
	return "GET " + livePath + "/clusters/c1/proxy" + path + " HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer " + user +
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + extra + "\r\n"
}

func TestProxyForwardsUpgrade(t *testing.T) {
	seen := make(chan *http.Request, 1)
	a := newTestAgent(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(t.Context())
		c, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.CopyN(c, brw, 4)
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	c, br := s.dial(t, upgradeRequest("alice", "/api/v1/namespaces/a/pods/b/exec?command=sh", ""))
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %v, %v", res, err)
	}
	_, _ = io.WriteString(c, "ping")
	if got, err := io.ReadAll(br); err != nil || string(got) != "ping" {
		t.Errorf("read %q, %v", got, err)
	}
	r := <-seen
	if callerSeen(r) != "alice devs,system:authenticated" || r.Header.Get("Authorization") != "" || r.URL.RawQuery != "command=sh" {
		t.Errorf("asked %s as %q with %v", r.URL, callerSeen(r), r.Header)
	}
}

// TestProxyUpgradeNeedsCreate is the GET that runs a command (nodes/proxy): the
// right to read is not enough.
func TestProxyUpgradeNeedsCreate(t *testing.T) {
	asked := make(chan struct{}, 16)
	a := newTestAgent(t, func(http.ResponseWriter, *http.Request) { asked <- struct{}{} })
	readers := func(r authorizationv1.SubjectAccessReviewSpec) bool {
		return r.ResourceAttributes != nil && r.ResourceAttributes.Verb == "get" && r.ResourceAttributes.Subresource == "proxy"
	}
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, readers, Limits{})
	cases := map[string]struct {
		reason  string
		request string
		code    int
	}{
		"websocket":       {reason: "an upgrade needs create", request: upgradeRequest("alice", "/exec", ""), code: 403},
		"keep-alive too":  {reason: "it is an upgrade all the same", request: strings.Replace(upgradeRequest("alice", "/exec", ""), "Connection: Upgrade", "Connection: keep-alive, upgrade", 1), code: 403},
		"no Connection":   {reason: "half an upgrade is none", request: strings.Replace(upgradeRequest("alice", "/exec", ""), "Connection: Upgrade\r\n", "", 1), code: 400},
		"no Upgrade":      {reason: "half an upgrade is none", request: strings.Replace(upgradeRequest("alice", "/exec", ""), "Upgrade: websocket\r\n", "", 1), code: 400},
		"two protocols":   {reason: "which one?", request: upgradeRequest("alice", "/exec", "Upgrade: SPDY/3.1\r\n"), code: 400},
		"with a body":     {reason: "it could hide a request", request: upgradeRequest("alice", "/exec", "Content-Length: 4\r\n") + "body", code: 400},
		"pipelined":       {reason: "the second request goes nowhere", request: upgradeRequest("alice", "/exec", "") + upgradeRequest("alice", "/exec", ""), code: 403},
		"encoded subpath": {reason: "one path is authorized and forwarded", request: upgradeRequest("alice", "/%2e%2e/exec", ""), code: 400},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, br := s.dial(t, tc.request)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if res.StatusCode != tc.code {
				t.Errorf("%s: answered %d, want %d", tc.reason, res.StatusCode, tc.code)
			}
			if second, err := http.ReadResponse(br, nil); err == nil {
				t.Errorf("%s: the connection stays open, and answers %d", tc.reason, second.StatusCode)
			}
			select {
			case <-asked:
				t.Errorf("%s: the cluster was asked", tc.reason)
			default:
			}
		})
	}
	res := s.do(t, http.MethodGet, livePath+"/clusters/c1/proxy/api", "alice", nil)
	if res.StatusCode != http.StatusOK {
		t.Errorf("reading: %d, want that get is enough", res.StatusCode)
	}
}
