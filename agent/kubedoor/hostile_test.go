// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// impersonations are header lines by which a compromised hub could try to be
// someone whom the door does not make it: every spelling of every name.
func impersonations() []string {
	var lines []string
	for _, name := range []string{
		"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes",
		"Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id", "Impersonate-Future",
	} {
		for _, spelling := range []string{
			name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"),
			strings.ToLower(strings.ReplaceAll(name, "-", "_")), strings.ReplaceAll(name, "-", "."),
			strings.Replace(name, "-", "--", 1), "_" + name, strings.ReplaceAll(name, "-", "-_"),
		} {
			lines = append(lines,
				spelling+": system:admin\r\n",
				spelling+": a\r\n"+spelling+": system:masters\r\n",
				"Connection: "+spelling+"\r\n"+spelling+": system:admin\r\n",
				"Connection: Impersonate-User, Impersonate-Group\r\n"+spelling+": system:admin\r\n",
			)
		}
		lines = append(lines,
			name+": \r\n", name+":\tsystem:admin\r\n", name+" : system:admin\r\n", " "+name+": system:admin\r\n",
			"X-Folded: a\r\n "+name+": system:admin\r\n",
			"Trailer: "+name+"\r\n", "Te: trailers\r\nTrailer: "+name+"\r\n"+name+": x\r\n",
		)
	}
	return append(lines,
		"Authorization: Bearer forged\r\n", "X-Remote-User: root\r\n", "X-Remote-Group: system:masters\r\n",
		"X-Remote-Extra-Scopes: all\r\n", "x-remote-user: root\r\n",
	)
}

// TestDoorForwardsNoImpersonation sends each line both with an ordinary
// request and with an upgrade, over the wire. The API server sees the door's
// own impersonation and nothing else that is about the caller.
func TestDoorForwardsNoImpersonation(t *testing.T) {
	api := newAPIServer(t, ok)
	s := open(t, Config{Rest: api.config(), Groups: []string{"dev"}})
	address := s.Listener.Addr().String()
	lines := impersonations()
	if len(lines) < 120 {
		t.Fatalf("%d variants, want 120", len(lines))
	}
	forwarded := 0
	for _, line := range lines {
		for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
			raw(t, address, "GET /api/v1/pods HTTP/1.1\r\nHost: kube\r\n"+
				"Spokelet-Principal: user\r\nSpokelet-Principal-User: alice\r\nSpokelet-Principal-Group: dev\r\nAccept: */*\r\n"+
				upgrade+line+"\r\n")
			select {
			case r := <-api.seen:
				forwarded++
				checkCaller(t, line, r)
			default: // refused, by the server or by the door
			}
		}
	}
	if forwarded == 0 {
		t.Error("nothing was forwarded: the test proves nothing")
	}
	t.Logf("%d of %d requests were forwarded, none with a claim of its own", forwarded, 2*len(lines))
}

func checkCaller(t *testing.T, line string, r *http.Request) {
	t.Helper()
	about := http.Header{}
	for k, v := range r.Header {
		plain := strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(k))
		if strings.Contains(plain, "impersonate") || strings.Contains(plain, "remote") ||
			strings.Contains(plain, "principal") || plain == "authorization" {
			about[k] = v
		}
	}
	for k, v := range r.Trailer {
		about["trailer "+k] = v
	}
	want := http.Header{
		"Authorization": {"Bearer " + agentToken}, "Impersonate-User": {"hub:alice"}, "Impersonate-Group": {"hub:dev"},
	}
	if diff := cmp.Diff(want, about); diff != "" {
		t.Errorf("%q: what the API server is told of the caller (-want +got):\n%s", line, diff)
	}
}

// raw sends bytes and waits for one answer, or for the end.
func raw(t *testing.T, address, request string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, request)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}

// targets are request targets that try to be one path to the ceiling and
// another to the API server.
func targets() []string {
	var all []string
	for _, trick := range []string{
		"/", "//", "/./", "/../", "/.%2e/", "/%2e./", "/%2e%2e/", "/%2E%2E/", "/%252e%252e/", "%2f", "%2F", "%252f", "/%2f", "%2f/",
		"%5c", "%5C", `\`, `/..\`, `\..\`, ";/", "/;/", "/;x=1/", "/..;/", "%3b/", "/%00/", "%00", "%0a", "%0d%0a", "%09", "/%20/",
		"%c0%af", "%e0%80%af", "/%c0%ae%c0%ae/", "%ff", "/%u002e%u002e/", "/.%00./", "/...", "/....//", "/%2e%2e%2f", "..%2f", "%2e%2e%5c",
		"/%c4%b0/", "/\u2025/", "/\uff0e\uff0e/", "\uff0f", "/%ef%bc%8f/", "/~/", "/%7e/", "/%%32%65/", "/%2%65/",
	} {
		all = append(all,
			"/api/v1/namespaces/a"+trick+"kube-system/secrets",
			"/api/v1/namespaces/a/pods"+trick+"../../kube-system/secrets",
			"/api/v1"+trick+"namespaces/kube-system/secrets",
			"/api/v1/namespaces"+trick+"a/pods",
		)
	}
	return append(all,
		"http://kube/api/v1/namespaces/a/pods", "https://evil/api/v1/namespaces/kube-system/secrets", "//evil/api/v1/namespaces/a/pods",
		"*", "api/v1/namespaces/a/pods", "evil:443", "/api/v1/namespaces/a/pods#/../..", "/api/v1/namespaces/a?/../kube-system/secrets",
		"/api/v1/namespaces/a/pods?namespace=kube-system", "/API/V1/namespaces/kube-system/secrets", "/apis/v1/namespaces/a/pods/x",
	)
}

// TestDoorForwardsThePathThatItChecked sends every target to a door with a
// ceiling. What arrives lies within it by the API server's own reading.
func TestDoorForwardsThePathThatItChecked(t *testing.T) {
	api := newAPIServer(t, ok)
	s := open(t, Config{Rest: api.config(), Namespaces: []string{"a"}})
	all := targets()
	if len(all) < 150 {
		t.Fatalf("%d variants, want 150", len(all))
	}
	forwarded := 0
	for _, target := range all {
		for _, method := range []string{"GET", "CONNECT"} {
			raw(t, s.Listener.Addr().String(), fmt.Sprintf("%s %s HTTP/1.1\r\nHost: kube\r\n"+
				"Spokelet-Principal: user\r\nSpokelet-Principal-User: alice\r\n\r\n", method, target))
			select {
			case r := <-api.seen:
				forwarded++
				checkTarget(t, target, r)
			default:
			}
		}
	}
	if forwarded == 0 {
		t.Error("nothing was forwarded: the test proves nothing")
	}
	t.Logf("%d of %d targets were forwarded, all within the ceiling", forwarded, 2*len(all))
}

func checkTarget(t *testing.T, target string, r *http.Request) {
	t.Helper()
	decoded, err := url.PathUnescape(r.URL.EscapedPath())
	parts := strings.Split(strings.TrimPrefix(decoded, "/"), "/")
	within := len(parts) >= 4 && parts[0] == "api" && parts[1] == "v1" && parts[2] == "namespaces" && parts[3] == "a" ||
		len(parts) >= 5 && parts[0] == "apis" && parts[3] == "namespaces" && parts[4] == "a"
	if err != nil || !within || decoded != r.URL.Path || strings.Contains(decoded, "..") && strings.Contains(decoded, "/../") {
		t.Errorf("%q was forwarded as %q", target, r.RequestURI)
	}
}
