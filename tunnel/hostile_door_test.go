// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// authorities are places that somebody may want an agent to reach: addresses of
// its own node and network, in spellings that filters miss, other services, and
// names that come close to a door's.
func authorities(listener string) []string {
	all := []string{listener}
	for _, host := range []string{
		"localhost", "127.0.0.1", "127.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::]",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "169.254.169.254", "[fe80::1%25eth0]", "10.96.0.1",
		"kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "metadata.google.internal", "kube.example.com",
		"kubelet", "kube-dns.kube-system.svc", "example.com", "xn--kube-0f5a",
	} {
		all = append(all, host, host+":443", host+":0", host+":10250")
	}
	return append(all,
		"unix:/var/run/docker.sock", "unix:%2fvar%2frun%2fdocker.sock", "@abstract", "file:///etc/passwd", "kube/", "kube/../act",
		"kube@127.0.0.1", "127.0.0.1@kube", "kube#", "kube?x", "kube%00", "kube%2e", "KUBE", "Kube", "kube.", "kube:", "kube:80",
		"ku\u200bbe", "\uff4bube", "-kube", "kube-", "", " ", "kube sync", "kube,sync", "\u212aube",
	)
}

// TestAgentDialsNothingForTheHub opens a raw stream and sends a request to
// each authority. The agent knows its doors by name and dials nothing.
func TestAgentDialsNothingForTheHub(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int32
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = conn.Close()
		}
	}()
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	session := hub.Session(t, "spoke1")
	all := authorities(l.Addr().String())
	if len(all) < 120 {
		t.Fatalf("%d variants, want 120", len(all))
	}
	for _, authority := range all {
		if _, err := session.Dial(t.Context(), authority); !errors.Is(err, tunnel.ErrDoor) {
			t.Errorf("raw stream to %q: %v, want ErrDoor", authority, err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Host = authority
		resp, err := session.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("request to %q: status %d, want 404", authority, resp.StatusCode)
			}
		} else if !errors.Is(err, tunnel.ErrDoor) {
			t.Errorf("request to %q: %v, want ErrDoor", authority, err)
		}
	}
	_ = l.Close()
	<-accepting
	if reached.Load() != 0 {
		t.Errorf("%d connections or requests came through", reached.Load())
	}
}
