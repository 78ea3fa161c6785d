// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// impersonationHeaders are header lines by which a caller could try to be someone
// else at the kube door.
func impersonationHeaders() []string {
	var lines []string
	for _, name := range []string{
		"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes", "Impersonate-Future",
		"Spokelet-Principal", "Spokelet-Principal-User", "Spokelet-Principal-Group", "Spokelet-Principal-Extra",
	} {
		for _, spelling := range []string{
			strings.ReplaceAll(name, "-", "_"), strings.ToLower(strings.ReplaceAll(name, "-", "_")),
			strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "--", 1), "_" + name, strings.ReplaceAll(name, "-", "-_"),
			name, strings.ToLower(name), strings.ToUpper(name),
		} {
			lines = append(lines, spelling+": system:admin\r\n", "Connection: keep-alive, "+spelling+"\r\n"+spelling+": node\r\n")
		}
		lines = append(lines, "Trailer: "+name+"\r\n", "Te: trailers\r\nTrailer: "+name+"\r\n", name+":\r\n", "Accept: a\r\n "+name+": system:admin\r\n")
	}
	return append(lines, "Authorization: Bearer root\r\n", "Proxy-Authorization: Bearer root\r\n", "Cookie: token=root\r\n",
		"X-Remote-User: root\r\n", "X-Remote-Group: system:masters\r\n", "x-remote-extra-scopes: all\r\n",
		// In base64url "cm9vdA" is root, of whom alice is not one.
		"Sec-WebSocket-Protocol: v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.cm9vdA\r\n",
		"sec-websocket-protocol: base64url.bearer.authorization.k8s.io.cm9vdA\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
		"Sec-WebSocket-Protocol: v5.channel.k8s.io,Base64url.Bearer.authorization.k8s.io.cm9vdA,x\r\n",
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.cm9vdA\r\n")
}

// TestProxyRemovesImpersonationHeaders sends each line over the wire, with an
// ordinary request and with an upgrade. Either the hub's own chain resolves or
// refuses it, or the cluster is asked as alice.
func TestProxyRemovesImpersonationHeaders(t *testing.T) {
	seen := make(chan *http.Request, 16)
	a := newTestAgent(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Clone(t.Context()) })
	// Nobody may impersonate on the hub.
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, denyImpersonation, Limits{})
	lines := impersonationHeaders()
	if len(lines) < 120 {
		t.Fatalf("%d variants, want 120", len(lines))
	}
	forwarded := 0
	for _, line := range lines {
		for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
			s.raw(t, "GET "+livePath+"/clusters/c1/proxy/api HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer alice\r\n"+upgrade+line+"\r\n")
			select {
			case r := <-seen:
				forwarded++
				checkCaller(t, line, r)
			default:
			}
		}
	}
	if forwarded < len(lines) {
		t.Errorf("%d requests were forwarded: the test proves little", forwarded)
	}
	t.Logf("%d of %d requests were forwarded, all as alice", forwarded, 2*len(lines))
}

func checkCaller(t *testing.T, line string, r *http.Request) {
	t.Helper()
	about := http.Header{}
	for k, v := range r.Header {
		plain := strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(k))
		if strings.Contains(plain, "impersonate") || strings.Contains(plain, "remote") || strings.Contains(plain, "principal") ||
			strings.Contains(plain, "authorization") || plain == "cookie" {
			about[k] = v
		}
	}
	for k, v := range r.Trailer {
		about["trailer "+k] = v
	}
	if offered := strings.Join(r.Header["Sec-Websocket-Protocol"], ", "); strings.Contains(strings.ToLower(offered), "bearer") {
		t.Errorf("%q: a token left the hub: %q", line, offered)
	} else if strings.Contains(line, "v5.channel") && !strings.HasPrefix(offered, "v5.channel.k8s.io") {
		t.Errorf("%q: the other protocols are %q", line, offered)
	}
	want := http.Header{
		"Spokelet-Principal": {"user"}, "Spokelet-Principal-User": {"alice"},
		"Spokelet-Principal-Group": {"devs", "system:authenticated"},
	}
	if diff := cmp.Diff(want, about); diff != "" {
		t.Errorf("%q: what the cluster is told of the caller (-want +got):\n%s", line, diff)
	}
}

// raw sends bytes and waits for one answer, or for the end.
func (s *liveServer) raw(t *testing.T, request string) {
	t.Helper()
	c, br := s.dial(t, request)
	defer func() { _ = c.Close() }()
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}

// proxyTargets try to be authorized for one cluster or path and forwarded to
// another. The caller may use c1 alone.
func proxyTargets() []string {
	var all []string
	for _, trick := range []string{
		"/", "//", "/./", "/../", "/.%2e/", "/%2e./", "/%2e%2e/", "/%2E%2E/", "/%252e%252e/", "%2f", "%2F", "%252f", "/%2f", "%2f/",
		"%5c", `\`, `/..\`, ";/", "/;/", "/;x=1/", "/..;/", "%3b/", "/%00/", "%00", "%0a", "%0d%0a", "%09", "/%20/",
		"%c0%af", "/%c0%ae%c0%ae/", "%ff", "/%u002e%u002e/", "/....//", "/%2e%2e%2f", "..%2f", "%2e%2e%5c", "/\u2025/", "\uff0f", "?", "#", "?/", "%3f", "%23",
	} {
		all = append(all,
			livePath+"/clusters/c1/proxy"+trick+"../../c2/proxy/api",
			livePath+"/clusters/c1"+trick+"../c2/proxy/api",
			livePath+"/clusters/c1/proxy/api"+trick+"v1/secrets",
			livePath+"/clusters"+trick+"c2/proxy/api",
		)
	}
	return append(all,
		livePath+"/clusters/C1/proxy/api", livePath+"/clusters/c%31/proxy/api", livePath+"/clusters/c%32/proxy/api", livePath+"/clusters/*/proxy/api",
		livePath+"/namespaces/x/clusters/c2/proxy/api", livePath+"/watch/clusters/c2/proxy/api", livePath+"/proxy/clusters/c2/api",
		"https://c2"+livePath+"/clusters/c1/proxy/api", "//c2"+livePath+"/clusters/c1/proxy/api", livePath+"/clusters//proxy/api",
		livePath+"/clusters/c1/proxyx/api", livePath+"/clusters/c1/proxy?cluster=c2", "/apis/live.spokelet.io/v1/clusters/c2/proxy/api",
	)
}

// TestProxyForwardsToAuthorizedClusterOnly sends every target as a caller who may
// use c1 alone. The kube doors say which cluster was asked, and for what.
func TestProxyForwardsToAuthorizedClusterOnly(t *testing.T) {
	seen := make(chan string, 16)
	door := func(name string) *testAgent {
		return newTestAgent(t, func(_ http.ResponseWriter, r *http.Request) { seen <- name + " " + r.RequestURI })
	}
	s := start(t, &fleet{clusters: map[string]Session{"c1": door("c1"), "c2": door("c2")}}, allowC1, Limits{})
	all := proxyTargets()
	if len(all) < 150 {
		t.Fatalf("%d variants, want 150", len(all))
	}
	forwarded := 0
	for _, target := range all {
		s.raw(t, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer alice\r\n\r\n", target))
		select {
		case asked := <-seen:
			forwarded++
			path, _, _ := strings.Cut(asked, "?")
			if !strings.HasPrefix(asked, "c1 /") || strings.Contains(path, "c2") || strings.Contains(path, "/..") || strings.Contains(path, "//") {
				t.Errorf("%q was forwarded as %q", target, asked)
			}
		default:
		}
	}
	if forwarded == 0 {
		t.Error("nothing was forwarded: the test proves nothing")
	}
	t.Logf("%d of %d targets were forwarded, all to the authorized cluster", forwarded, len(all))
}

// upgradeRequests are requests that are an upgrade, or may look like one to a reader
// behind: each method with each form of the two headers.
func upgradeRequests() []string {
	var all []string
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		for _, lines := range []string{
			"Connection: Upgrade\r\nUpgrade: websocket\r\n",
			"connection: keep-alive, UPGRADE\r\nupgrade: SPDY/3.1\r\n",
			"Connection: close\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
			"Upgrade: websocket\r\n",
			"Connection: Upgrade\r\n",
			"Connection: Upgrade\r\nUpgrade:\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n",
		} {
			all = append(all, method+" "+livePath+"/clusters/c1/proxy/exec HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer alice\r\n"+lines+"\r\n")
		}
	}
	return all
}

// TestProxyRefusesUpgradeVariantsWithoutCreate sends each with a second request behind it,
// as a caller who may do all but create.
func TestProxyRefusesUpgradeVariantsWithoutCreate(t *testing.T) {
	asked := make(chan *http.Request, 16)
	a := newTestAgent(t, func(_ http.ResponseWriter, r *http.Request) { asked <- r.Clone(t.Context()) })
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, func(r authorizationv1.SubjectAccessReviewSpec) bool {
		return allowC1(r) && r.ResourceAttributes.Verb != "create"
	}, Limits{})
	all := upgradeRequests()
	if len(all) < 60 {
		t.Fatalf("%d variants, want 60", len(all))
	}
	for _, request := range all {
		c, br := s.dial(t, request+"GET "+livePath+"/clusters/c1/proxy/secret HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer alice\r\n\r\n")
		answers := 0
		for ; answers < 3; answers++ {
			res, err := http.ReadResponse(br, &http.Request{Method: strings.Fields(request)[0]})
			if err != nil {
				break
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusBadRequest {
				t.Errorf("%q: answered %d", request, res.StatusCode)
			}
		}
		if answers != 1 {
			t.Errorf("%q: %d answers, want one and the end of the connection", request, answers)
		}
		_ = c.Close()
		select {
		case r := <-asked:
			t.Errorf("%q: the cluster was asked %s %s", request, r.Method, r.URL)
		default:
		}
	}
}
