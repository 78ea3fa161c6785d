// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// streams is how many requests a connection takes at once: as many as a client takes it to
// take before it is told.
const streams = 100

// agent is the other end of a process: it serves a handler at the way to the cluster.
type agent struct {
	in  *io.PipeWriter
	out *bufio.Scanner
	// ended is what the process ended with.
	ended chan error
}

// start starts a process in this one.
func start(t *testing.T, handler http.HandlerFunc) *agent {
	t.Helper()
	way, stop := serve(t, handler)
	requests, in := io.Pipe()
	out, answers := io.Pipe()
	a := &agent{in: in, out: bufio.NewScanner(out), ended: make(chan error, 1)}
	a.out.Buffer(nil, message.MaxAnswer)
	go func() {
		a.ended <- handleRequest(t.Context(), requests, answers, way)
		_ = answers.Close()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = out.Close()
		stop()
	})
	return a
}

// serve serves what is asked through a file.
func serve(t *testing.T, handler http.HandlerFunc) (way *os.File, stop func()) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(fds[0]), "agent")
	conn, err := net.FileConn(ours)
	if err := errors.Join(err, ours.Close()); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, Protocols: &http.Protocols{}, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}, ReadHeaderTimeout: time.Minute}
	server.Protocols.SetUnencryptedHTTP2(true)
	only := &listener{conns: make(chan net.Conn, 1), addr: conn.LocalAddr()}
	only.conns <- conn
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(only)
	}()
	return os.NewFile(uintptr(fds[1]), "cluster"), func() {
		_ = server.Close()
		_ = conn.Close()
		<-served
	}
}

// listener is one of a connection.
type listener struct {
	conns chan net.Conn
	once  sync.Once
	addr  net.Addr
}

func (l *listener) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (l *listener) Addr() net.Addr { return l.addr }
func (l *listener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (a *agent) send(t *testing.T, request message.Request) {
	t.Helper()
	if err := json.NewEncoder(a.in).Encode(request); err != nil {
		t.Fatal(err)
	}
}

// last reads answers until one has no progress.
func (a *agent) last(t *testing.T) message.Answer {
	t.Helper()
	for a.out.Scan() {
		var answer message.Answer
		if err := json.Unmarshal(a.out.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Progress == "" {
			return answer
		}
	}
	t.Fatalf("it ended without an answer: %v", a.out.Err())
	return message.Answer{}
}

// forbidden is an API server that lets nobody do anything.
func forbidden(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"secrets is forbidden"}`)
}

func TestRequestUsesGivenConnection(t *testing.T) {
	a := start(t, forbidden)
	a.send(t, message.Request{Verb: message.Uninstall, Name: "web", Namespace: "shop", Timeout: time.Minute})
	answer := a.last(t)
	if answer.Failure == nil || answer.Failure.Cause != message.Refused || answer.Failure.Reason != "Forbidden" || !strings.Contains(answer.Failure.Message, "secrets is forbidden") {
		t.Errorf("got %+v", answer.Failure)
	}
	if err := <-a.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestProcessEndsWithAgent(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	a := start(t, func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(asked) })
		<-r.Context().Done()
	})
	a.send(t, message.Request{Verb: message.Uninstall, Name: "web", Namespace: "shop", Timeout: time.Hour})
	<-asked
	_ = a.in.Close()
	if err := <-a.ended; !errors.Is(err, errAgentGone) {
		t.Errorf("it ended with %v, want %v", err, errAgentGone)
	}
}

func TestInvalidRequestIsRefused(t *testing.T) {
	for name, raw := range map[string]string{"nothing": "", "no JSON": "hello", "without end": `{"values":"` + strings.Repeat("a", message.MaxRequest)} {
		t.Run(name, func(t *testing.T) {
			if err := handleRequest(t.Context(), strings.NewReader(raw), io.Discard, nil); err == nil {
				t.Error("it is taken")
			}
		})
	}
}

func TestRequestsWaitForConnection(t *testing.T) {
	way, stop := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	defer stop()
	config, hangUp, err := connect(t.Context(), way)
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp()
	var all sync.WaitGroup
	for i := range 5 * streams {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/%d", config.Host, i), http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := config.Transport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		})
	}
	all.Wait()
}

func TestOversizedManifestIsOmitted(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, manifest, want string
	}{
		"a small one": {reason: "it is taken", manifest: "<a>", want: "<a>"},
		"a large one": {reason: "the agent bounds a line", manifest: strings.Repeat("<", message.MaxAnswer), want: message.Omitted},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			given := &message.Release{Name: "web", Manifest: tc.manifest}
			if err := (&answerWriter{out: &out}).send(message.Answer{Release: given}); err != nil {
				t.Fatal(err)
			}
			var got message.Answer
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.Release.Manifest != tc.want || given.Manifest != tc.manifest {
				t.Errorf("got a manifest of %d bytes: %s", len(got.Release.Manifest), tc.reason)
			}
		})
	}
}

func TestProcessEndsWhenItCannotAnswer(t *testing.T) {
	way, stop := serve(t, forbidden)
	defer stop()
	in, write := io.Pipe()
	defer func() { _ = write.Close() }()
	go func() {
		_ = json.NewEncoder(write).Encode(message.Request{Verb: message.Uninstall, Name: "web", Namespace: "shop", Timeout: time.Minute})
	}()
	out, closed := io.Pipe()
	_ = out.Close()
	if err := handleRequest(context.WithoutCancel(t.Context()), in, closed, way); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
	}
}
