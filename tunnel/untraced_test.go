// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// hints answers 103 n times and then 200.
func hints(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</"+strings.Repeat("a", 1000)+">")
		for i := 0; i < n && r.Context().Err() == nil; i++ {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "done")
	}
}

// traced counts the calls of every hook that a transport may call for a request
// that is sent over a connection that exists. Hooks wait until block is closed.
func traced(ctx context.Context, called *atomic.Int32, block <-chan struct{}) context.Context {
	hook := func() {
		called.Add(1)
		<-block
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { hook() },
		GotConn:              func(httptrace.GotConnInfo) { hook() },
		GotFirstResponseByte: hook,
		Got100Continue:       hook,
		Got1xxResponse:       func(int, textproto.MIMEHeader) error { hook(); return nil },
		WroteHeaderField:     func(string, []string) { hook() },
		WroteHeaders:         hook,
		Wait100Continue:      hook,
		WroteRequest:         func(httptrace.WroteRequestInfo) { hook() },
	})
}

// TestRoundTripCallsNoTraceHooks has a caller whose hooks never return, as
// one who reads nothing makes those of httputil.ReverseProxy, while the cluster
// answers 103 over and over.
func TestRoundTripCallsNoTraceHooks(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hints":
			hints(100)(w, r)
		case "/upgrade":
			upgrade(w, r)
		default:
			echo(w, r)
		}
	}))
	session := hub.Session(t, "spoke1")
	block := make(chan struct{})
	var called atomic.Int32
	ctx := traced(t.Context(), &called, block)
	slow := make(chan error, 2)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kube/hints", strings.NewReader("body"))
		if err != nil {
			slow <- err
			return
		}
		resp, err := session.RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		slow <- err
	}()
	go func() {
		conn, err := session.Dial(ctx, tunnel.DoorKube)
		if err == nil {
			_ = conn.Close()
		}
		slow <- err
	}()
	for range 10 {
		quick, cancel := context.WithTimeout(t.Context(), time.Minute)
		req, err := http.NewRequestWithContext(quick, http.MethodGet, "http://kube/other", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := session.RoundTrip(req)
		if err != nil {
			cancel()
			close(block)
			t.Fatalf("another request is not answered: %v; hooks were called %d times", err, called.Load())
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		cancel()
	}
	close(block)
	for range 2 {
		if err := <-slow; err != nil {
			t.Errorf("the caller with hooks: %v", err)
		}
	}
	if n := called.Load(); n != 0 || session.Err() != nil {
		t.Errorf("hooks were called %d times; session: %v", n, session.Err())
	}
}

func TestEndlessInformationalAnswersEndTheirStreamOnly(t *testing.T) {
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			hints(1<<20)(w, r)
			return
		}
		echo(w, r)
	}))
	session := hub.Session(t, "spoke1")
	if resp, err := client(session).Get("http://kube/hints"); err == nil {
		_ = resp.Body.Close()
		t.Errorf("answered %d, want an error", resp.StatusCode)
	}
	resp, err := client(session).Get("http://kube/other")
	if err != nil || session.Err() != nil {
		t.Fatalf("another request: %v; session: %v", err, session.Err())
	}
	_ = resp.Body.Close()
}

// TestRoundTripHonoursContextWithTrace: what hides the hooks hides nothing else.
func TestRoundTripHonoursContextWithTrace(t *testing.T) {
	entered := make(chan struct{})
	hub := tunneltest.NewHub(t, nil)
	hub.Connect(t, "spoke1", kube(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	var called atomic.Int32
	ctx, cancel := context.WithCancel(traced(t.Context(), &called, nil))
	go func() {
		<-entered
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kube/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := hub.Session(t, "spoke1").RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("answered, want that it ends with its context")
	}
	if ctx.Err() == nil {
		t.Errorf("ended by %v before its context", err)
	}
}
