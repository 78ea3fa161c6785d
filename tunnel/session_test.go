// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// echo answers with the method, the path and what it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
}

func kube(h http.HandlerFunc) map[string]http.Handler {
	return map[string]http.Handler{tunnel.DoorKube: h}
}

func client(s *tunnel.Session) *http.Client { return &http.Client{Transport: s} }

func TestRoundTripReachesDoor(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(echo))
	session := hub.Session(t, "spoke1")
	resp, err := client(session).Post("http://kube/api/v1/pods", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body), "POST /api/v1/pods hello"; got != want {
		t.Errorf("body = %q, want %q", got, want)
	}
}

func TestDialOpensConnectionToDoor(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(upgrade))
	checkUpgrade(t, hub.Session(t, "spoke1"))
}

// checkUpgrade upgrades a raw stream and has lines echoed over it.
func checkUpgrade(t *testing.T, session *tunnel.Session) {
	t.Helper()
	conn, err := session.Dial(t.Context(), tunnel.DoorKube)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /exec HTTP/1.1\r\nHost: kube\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status = %d, want 101", resp.StatusCode)
	}
	for i := range 100 {
		fmt.Fprintf(conn, "line %d\n", i)
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("line %d\n", i); line != want {
			t.Fatalf("line = %q, want %q", line, want)
		}
	}
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want EOF", err)
	}
}

func TestFedStreamEndsWithSourceOrAgent(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(near, far net.Conn, agent *tunneltest.Agent)
		source error // with which feeding has ended
		clean  bool  // end of the agent's direction
	}{
		"the source": {"its end is passed on", func(_, far net.Conn, _ *tunneltest.Agent) { _ = far.Close() }, nil, true},
		"the source, by an error": {
			"it is no end in order", func(near, _ net.Conn, _ *tunneltest.Agent) { _ = near.Close() }, io.ErrClosedPipe, false,
		},
		"the tunnel": {
			"whoever waits for the source is told", func(_, _ net.Conn, a *tunneltest.Agent) { a.Network.Cut() }, tunnel.ErrAborted, false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := tunneltest.NewHub(t, nil)
			agent := hub.Connect(t, "spoke1", kube(upgrade))
			conn, err := hub.Session(t, "spoke1").Dial(t.Context(), tunnel.DoorKube)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET /exec HTTP/1.1\r\nHost: kube\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			ended := make(chan error, 1)
			conn.(interface {
				Feed(src tunnel.Source, ended func(error))
			}).Feed(near, func(err error) { ended <- err })
			fmt.Fprintf(far, "line\n")
			r := bufio.NewReader(conn)
			for line := ""; line != "line\n"; {
				if line, err = r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			tc.end(near, far, agent)
			if err := <-ended; !errors.Is(err, tc.source) {
				t.Errorf("%s: feeding ended with %v, want %v", tc.reason, err, tc.source)
			}
			if _, err := r.ReadByte(); err == nil || errors.Is(err, io.EOF) != tc.clean {
				t.Errorf("%s: the agent's direction ended with %v", tc.reason, err)
			}
		})
	}
}

// upgrade switches to a protocol that echoes.
func upgrade(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, rw)
}
