// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// failures are what an API server may answer to an upgrade instead of 101. The
// last ones are no answer of an API server, but of something in its place.
var failures = map[string]http.HandlerFunc{
	"200": ok,
	"403": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
	"500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
	"204": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"301": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/secret", http.StatusMovedPermanently)
	},
	"401":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
	"101 of something else": instead("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"),
	"101 without Upgrade":   instead("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
	"garbage":               instead("<html>nothing here</html>\r\n\r\n"),
	"nothing":               instead(""),
	"two answers":           instead("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"),
}

// instead answers with bytes and closes.
func instead(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, answer)
		_ = conn.Close()
	}
}

// TestDoorClosesConnectionAfterFailedUpgrade sends a second request behind each upgrade,
// as Kubernetes CVE-2018-1002105 did. It reaches nobody and is not answered,
// whatever the method, the protocol and the failure.
func TestDoorClosesConnectionAfterFailedUpgrade(t *testing.T) {
	variants := 0
	for failure, answer := range failures {
		api := newAPIServer(t, answer)
		s := open(t, Config{Rest: api.config(), Groups: []string{"dev"}})
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			for _, protocol := range []string{"websocket", "SPDY/3.1", "h2c"} {
				variants++
				name := fmt.Sprintf("%s %s, answered with %s", method, protocol, failure)
				follow(t, name, s.Listener.Addr().String(), method, protocol)
				requests := 0
				for drained := false; !drained; {
					select {
					case r := <-api.seen:
						requests++
						if r.URL.Path != "/api/v1/namespaces/a/pods/p/exec" {
							t.Errorf("%s: %s was forwarded", name, r.URL)
						}
					default:
						drained = true
					}
				}
				if requests > 1 {
					t.Errorf("%s: %d requests were forwarded", name, requests)
				}
			}
		}
	}
	if variants < 120 {
		t.Fatalf("%d variants, want 120", variants)
	}
}

// follow sends an upgrade with a second request behind it, and reads what is
// answered up to the end, which must come.
func follow(t *testing.T, name, address, method, protocol string) {
	t.Helper()
	const caller = "Host: kube\r\nSpokelet-Principal: user\r\nSpokelet-Principal-User: alice\r\n"
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, method+" /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\n"+caller+
		"Connection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\nGET /api/v1/secret HTTP/1.1\r\n"+caller+"\r\n")
	br := bufio.NewReader(c)
	first, err := http.ReadResponse(br, nil)
	if err != nil {
		return // closed without an answer
	}
	if first.StatusCode == http.StatusSwitchingProtocols {
		t.Errorf("%s: the door says that the protocol has changed", name)
	}
	_, _ = io.Copy(io.Discard, first.Body)
	_ = first.Body.Close()
	if second, err := http.ReadResponse(br, nil); err == nil {
		t.Errorf("%s: the second request was answered: %d", name, second.StatusCode)
	}
}
