// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestWhatIsAskedOfANode(t *testing.T) {
	f := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "unexpected", http.StatusTeapot) })
	cases := map[string]struct {
		method, path string
		code         int
		text         string
	}{
		"a log without a pod":             {"", "/containerLogs/team/other/main", 404, `pod "other" does not exist`},
		"a log of another namespace":      {"", "/containerLogs/default/web/main", 404, `pod "web" does not exist`},
		"a log without a container":       {"", "/containerLogs/team/web/other", 404, `container "other" not found in pod "web"`},
		"a log since when":                {"", logPath + "?sinceTime=yesterday", 400, textUndecodable},
		"a log of how many lines":         {"", logPath + "?tailLines=x", 400, textUndecodable},
		"a log of fewer than no lines":    {"", logPath + "?tailLines=-1", 422, textInvalid},
		"a log of no bytes":               {"", logPath + "?limitBytes=0", 422, textInvalid},
		"a log since now":                 {"", logPath + "?sinceSeconds=0", 422, textInvalid},
		"a log since two times":           {"", logPath + "?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, textInvalid},
		"a log of an unknown stream":      {"", logPath + "?stream=Third", 422, textInvalid},
		"a log's tail of one stream":      {"", logPath + "?stream=Stdout&tailLines=1", 422, textInvalid},
		"a log of one stream":             {"", logPath + "?stream=Stdout", 400, `unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in kubelet`},
		"a log by POST":                   {"POST", logPath, 405, "method not allowed\n"},
		"exec without streams":            {"POST", "/exec/team/web/main?command=sh&error=0", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		"exec of a terminal's errors":     {"POST", "/exec/team/web/main?command=sh&tty=1&error=1", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		"exec without a pod":              {"POST", "/exec/team/other/main?output=1", 404, "pod does not exist"},
		"exec without a container":        {"POST", "/exec/team/web/other?output=1", 500, `container not found ("other")`},
		"exec in another pod's container": {"POST", "/exec/team/web/u2/main?output=1", 500, `container not found ("main")`},
		"exec without an upgrade":         {"POST", "/exec/team/web/u1/main?output=1", 500, "Upgrade request required"},
		"exec by PUT":                     {"PUT", "/exec/team/web/main?output=1", 405, "method not allowed\n"},
		"attach without a pod":            {"GET", "/attach/team/other/main?output=1", 404, "pod does not exist"},
		"attach without a container":      {"GET", "/attach/team/web/other?output=1", 500, "container other not found in pod web_team"},
		"attach without streams":          {"GET", "/attach/team/web/main", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		"attach without an upgrade":       {"GET", "/attach/team/web/init?output=1", 500, "Upgrade request required"},
		"port-forward without a pod":      {"POST", "/portForward/team/other", 404, "pod does not exist"},
		"port-forward of another pod":     {"POST", "/portForward/team/web/u2", 404, "pod not found"},
		"port-forward without an upgrade": {"POST", "/portForward/team/web", 500, "Upgrade request required"},
		"log files":                       {"", "/logs/", 501, "a virtual node has no log files, and its cluster's nodes are not asked for theirs; logs of pods are served"},
		"a query of logs":                 {"", "/logs/?query=kubelet", 501, "a virtual node has no log files, and its cluster's nodes are not asked for theirs; logs of pods are served"},
		"run":                             {"POST", "/run/team/web/main?cmd=sh", 501, "run is not served; exec is"},
		"checkpoint":                      {"POST", "/checkpoint/team/web/main", 501, "containers of a virtual node cannot be checkpointed"},
		"too little of a path":            {"", "/exec/team/web", 404, "404 page not found\n"},
		"too much of a path":              {"", "/exec/team/web/u1/main/x", 404, "404 page not found\n"},
		"an empty part":                   {"", "/exec/team//main", 404, "404 page not found\n"},
		"another kind":                    {"", "/cri/exec/team/web", 404, "404 page not found\n"},
		"running pods": {"", "/runningpods/", 200, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` +
			`{"metadata":{"name":"web","namespace":"team","uid":"u1"},"spec":{"containers":[{"name":"main","image":"busybox","resources":{}}]},"status":{}}]}`},
		"configuration": {"", "/configz", 200, `{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1",` +
			`"enableServer":true,"authentication":{"webhook":{"enabled":true,"cacheTTL":"2m0s"},"anonymous":{"enabled":false}},` +
			`"authorization":{"mode":"Webhook","webhook":{"cacheAuthorizedTTL":"5m0s","cacheUnauthorizedTTL":"30s"}},` +
			`"enableDebuggingHandlers":true,"enableSystemLogHandler":false,"enableSystemLogQuery":false,` +
			`"enableProfilingHandler":false,"enableDebugFlagsHandler":false}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			if code, text := f.do(method, tc.path, "t", nil); code != tc.code || text != tc.text {
				t.Errorf("answered %d %q, want %d %q", code, text, tc.code, tc.text)
			}
		})
	}
	if code, text := f.do(http.MethodGet, "/pods", "t", nil); code != http.StatusOK ||
		!strings.HasPrefix(text, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web"`) {
		t.Errorf("pods: answered %d %q", code, text)
	}
}

// upgrade sends an upgrade by hand and returns what is answered.
func (f *fixture) upgrade(request string) (int, string) {
	f.t.Helper()
	conn, err := tls.Dial("tcp", f.address, &tls.Config{RootCAs: f.ca.pool()})
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Impersonate-User: root\r\nSpokelet-Principal: user\r\nSpokelet-Principal-User: root\r\nCookie: a=b\r\n"+
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io\r\n\r\n", request)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestAnUpgradeThatFails(t *testing.T) {
	cases := map[string]struct {
		reason, request string
		serve           http.HandlerFunc
		code            int
		text            string
	}{
		"no ports":        {"a WebSocket has no other place for them", "GET /portForward/team/web", nil, 400, `query parameter "port" is required`},
		"an empty port":   {"it is none", "GET /portForward/team/web?port=", nil, 400, `query parameter "port" cannot be empty`},
		"a port too many": {"it is none", "GET /portForward/team/web?port=80,65536", nil, 400, `unable to parse "80,65536" as a port: strconv.ParseUint: parsing "65536": value out of range`},
		"port zero":       {"it is none", "GET /portForward/team/web?port=0", nil, 400, `port "0" must be > 0`},
		"the cluster's refusal": {
			"it says why", "GET " + execPath + "&output=1",
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `container not found ("main")`)
			}, 500, `container not found ("main")`,
		},
		"no pod": {
			"a kubelet says so", "GET " + execPath + "&output=1",
			func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, 404, "pod does not exist",
		},
		"the agent": {
			"it is not the caller who is unknown", "GET " + execPath + "&output=1",
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			502, "API server of the cluster does not accept the agent",
		},
		"another protocol": {
			"it was not asked for", "GET " + execPath + "&output=1",
			func(w http.ResponseWriter, _ *http.Request) {
				conn, _, _ := http.NewResponseController(w).Hijack()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
				_ = conn.Close()
			}, 502, `backend did not switch to the protocol asked for: asked for "websocket", got "h2c"`,
		},
		"a large header": {
			"it is held in memory before it is passed on", "GET " + execPath + "&output=1",
			func(w http.ResponseWriter, _ *http.Request) {
				conn, _, _ := http.NewResponseController(w).Hijack()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
					strings.Repeat("Link: "+strings.Repeat("a", 1<<10)+"\r\n", 300)+"\r\n")
				_ = conn.Close()
			}, 502, "net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 262144 bytes; aborted",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t, tc.serve)
			if code, text := s.upgrade(tc.request); code != tc.code || text != tc.text {
				t.Errorf("%s: answered %d %q, want %d %q", tc.reason, code, text, tc.code, tc.text)
			}
			if tc.serve != nil {
				s.checkAsked(t, http.MethodGet, "exec", url.Values{"container": {"main"}, "command": {"sh", "-c", "a & b"}, "stdout": {"true"}})
				if got := s.one(t).Header["Sec-Websocket-Protocol"]; len(got) != 1 || got[0] != "v4.channel.k8s.io" {
					t.Errorf("protocols %q were offered", got)
				}
			}
		})
	}
}

func TestPortsOfAWebSocketAreTranslated(t *testing.T) {
	s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s.upgrade("GET /portForward/team/web?port=80,443&port=8080")
	s.checkAsked(t, http.MethodGet, "portforward", url.Values{"ports": {"80", "443", "8080"}})
}

func TestAClusterThatIsNotConnected(t *testing.T) {
	s := newSpoke(t, nil)
	s.agent.Stop()
	for _, path := range []string{logPath, execPath + "&output=1"} {
		code, text := s.upgrade("GET " + path)
		if code != http.StatusServiceUnavailable || !strings.HasPrefix(text, `cluster "spoke1": not connected`) {
			t.Errorf("%s: answered %d %q", path, code, text)
		}
	}
}

func TestStreamsNeedCreate(t *testing.T) {
	v := &reviews{tokens: map[string]string{"r": "reader", "w": "writer"}, rights: map[right]bool{
		"reader get spoke1/proxy": true, "writer create spoke1/proxy": true,
	}}
	f := newFixture(t, v, testDoor{}, web())
	for _, path := range []string{"/exec/team/web/main?output=1", "/attach/team/web/main?output=1", "/portForward/team/web", "/run/team/web/main"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if code, _ := f.do(method, path, "r", nil); code != http.StatusForbidden {
				t.Errorf("%s %s: a reader got %d", method, path, code)
			}
			if code, _ := f.do(method, path, "w", nil); code == http.StatusForbidden {
				t.Errorf("%s %s: a writer got 403", method, path)
			}
		}
	}
	if code, _ := f.do(http.MethodGet, logPath, "w", nil); code != http.StatusForbidden {
		t.Errorf("a log: a writer got %d", code)
	}
	if code, _ := f.do(http.MethodGet, logPath, "r", nil); code == http.StatusForbidden {
		t.Error("a log: a reader got 403")
	}
}
