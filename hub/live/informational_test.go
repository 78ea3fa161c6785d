// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// TestSlowReaderDoesNotBlockOtherRequests has a cluster answer 103 over and
// over to a caller who takes none of it, through a session of the tunnel.
func TestSlowReaderDoesNotBlockOtherRequests(t *testing.T) {
	hub, sp := tunneltest.NewHub(t, nil), newFakeCluster()
	begun := make(chan struct{}, 1)
	hub.Connect(t, "c1", map[string]http.Handler{tunnel.DoorKube: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hints" {
			sp.serve(w, r)
			return
		}
		w.Header().Set("Link", strings.Repeat("a", 64<<10))
		for r.Context().Err() == nil {
			w.WriteHeader(http.StatusEarlyHints)
			select {
			case begun <- struct{}{}:
			default:
			}
		}
	})})
	session := hub.Session(t, "c1")
	s := start(t, &fleet{clusters: map[string]Session{"c1": tunnelSession{session}}}, allowAll, Limits{ViewTimeout: 5 * time.Second})
	s.dial(t, "GET "+livePath+"/clusters/c1/proxy/hints HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer mallory\r\n\r\n")
	<-begun
	for range 20 {
		if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil {
			t.Fatalf("another caller: %d %s; session: %v", failure.Code, failure.Message, session.Err())
		}
	}
	if session.Err() != nil {
		t.Errorf("session: %v", session.Err())
	}
}

// TestProxyDropsInformationalResponses has a cluster send each before its answer,
// with a place to go to. A 101 would leave a caller of HTTP/1.1 without an answer.
func TestProxyDropsInformationalResponses(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "c1", map[string]http.Handler{tunnel.DoorKube: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://elsewhere/")
		for _, code := range []int{100, 101, 102, 103, 199} {
			w.WriteHeader(code)
		}
		w.Header().Del("Location")
		_, _ = io.WriteString(w, "answer")
	})})
	s := start(t, &fleet{clusters: map[string]Session{"c1": tunnelSession{hub.Session(t, "c1")}}}, allowAll, Limits{})
	_, br := s.dial(t, "GET "+livePath+"/clusters/c1/proxy/api HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer alice\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK || string(raw) != "answer" || err != nil || res.Header.Get("Location") != "" {
		t.Errorf("answered %d %q to %q, %v; want 200 at once", res.StatusCode, raw, res.Header.Get("Location"), err)
	}
}

// TestProxyLimitsInformationalResponsesToUpgrade: none of them is passed on, and all of
// them together are bounded as one header is.
func TestProxyLimitsInformationalResponsesToUpgrade(t *testing.T) {
	a := newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		for err == nil {
			_, err = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLocation: https://elsewhere/\r\nLink: "+strings.Repeat("a", 1000)+"\r\n\r\n")
		}
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a}}, allowAll, Limits{})
	_, br := s.dial(t, upgradeRequest("alice", "/exec", ""))
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusBadGateway {
		t.Fatalf("answered %v, %v; want 502", res, err)
	}
	_ = res.Body.Close()
}
