// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

const logPath = "/containerLogs/team/web/main"

// open sends a GET with the API server's rights and returns the answer as it
// comes.
func (f *fixture) open(ctx context.Context, path string) *http.Response {
	f.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.ca.pool()}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.address+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer t")
	response, err := client.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestLogsAreAskedForAsTheAPIHasThem(t *testing.T) {
	cases := map[string]struct {
		reason, query string
		want          url.Values
	}{
		"nothing": {"all of it", "", url.Values{}},
		"everything": {
			"these are what kubectl has flags for",
			"follow=true&previous=true&timestamps=true&sinceSeconds=5&tailLines=0&limitBytes=7",
			url.Values{
				"follow": {"true"}, "previous": {"true"}, "timestamps": {"true"},
				"sinceSeconds": {"5"}, "tailLines": {"0"}, "limitBytes": {"7"},
			},
		},
		"a time":           {"its zone is kept in mind", "sinceTime=2026-01-02T03:04:05%2B01:00", url.Values{"sinceTime": {"2026-01-02T02:04:05Z"}}},
		"false":            {"it is the default", "follow=false&previous=0", url.Values{}},
		"an empty flag":    {"a kubelet takes it for true", "follow=", url.Values{"follow": {"true"}}},
		"the old tail":     {"kubelets still know it", "tail=3&tailLines=9", url.Values{"tailLines": {"3"}}},
		"the old tail all": {"kubelets still know it", "tail=all&tailLines=9", url.Values{}},
		"all streams":      {"it is the default", "stream=All", url.Values{}},
		"what is not the kubelet's": {
			"whom to trust is not for a reader to say", "insecureSkipTLSVerifyBackend=true&container=other&x=y", url.Values{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "line\n") })
			if code, body := s.do(http.MethodGet, logPath+"?"+tc.query, "t", nil); code != http.StatusOK || body != "line\n" {
				t.Errorf("%s: %d %q", tc.reason, code, body)
			}
			tc.want.Set("container", "main")
			s.checkAsked(t, http.MethodGet, "log", tc.want)
		})
	}
}

func TestLogsComeAsTheyAreWritten(t *testing.T) {
	read := make(chan struct{})
	s := newSpoke(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "two\n")
	})
	lines := bufio.NewReader(s.open(t.Context(), logPath+"?follow=true").Body)
	for _, want := range []string{"one\n", "two\n"} {
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
		if want == "one\n" {
			close(read)
		}
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("ended in %v", err)
	}
}

func TestALogThatWasCutHasNoCleanEnd(t *testing.T) {
	const told = `spokelet: the log ends here: cluster "spoke1": `
	tunnelCut := func(s *spoke) { s.agent.Network.Cut() }
	cases := map[string]struct {
		reason, log, query string
		cut                func(s *spoke)
		end                func()
		want               string // how what follows begins
	}{
		"the tunnel": {reason: "the hub lost the cluster", log: "one\n", cut: tunnelCut, want: told},
		"the cluster": {
			reason: "its API server lost the kubelet", log: "one\n", end: func() { panic(http.ErrAbortHandler) }, want: told,
		},
		"within a line": {reason: "the last line of the log is not ours", log: "on", cut: tunnelCut, want: "\n" + told},
		"before a line": {reason: "there is no line to be ended", log: "", cut: tunnelCut, want: told},
		"with room":     {reason: "the reader takes that much", log: "one\n", query: "&limitBytes=5000", cut: tunnelCut, want: told},
		"without room":  {reason: "the reader asked for no more", log: "one\n", query: "&limitBytes=30", cut: tunnelCut},
		"not followed":  {reason: "half a log looks like a whole one", log: "one\n", query: "&follow=false", cut: tunnelCut, want: told},
		"the node was removed": {
			reason: "nobody may read its logs", log: "one\n", cut: func(s *spoke) { s.server.Close("spoke1") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			read := make(chan struct{})
			s := newSpoke(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, tc.log)
				_ = http.NewResponseController(w).Flush()
				<-read
				if tc.end != nil {
					tc.end()
				}
				<-r.Context().Done()
			})
			body := s.open(t.Context(), logPath+"?follow=true"+tc.query).Body
			if _, err := io.ReadFull(body, make([]byte, len(tc.log))); err != nil {
				t.Fatal(err)
			}
			if tc.cut != nil {
				tc.cut(s)
			}
			close(read)
			rest, err := io.ReadAll(body)
			if err == nil {
				t.Errorf("%s: a clean end", tc.reason)
			}
			first, line := strings.CutPrefix(string(rest), tc.want)
			if !line || tc.want == "" && len(rest) > 0 || tc.want != "" && strings.Index(first, "\n") != len(first)-1 {
				t.Errorf("%s: read %q, want one line that begins with %q", tc.reason, rest, tc.want)
			}
		})
	}
}

func TestAReaderThatStoppedIsNotWaitedForAtTheEndOfALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const log = "one\n"
		read := make(chan struct{})
		conn := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, log)
			_ = http.NewResponseController(w).Flush()
			<-read
			panic(http.ErrAbortHandler)
		})
		if _, err := io.WriteString(conn, "GET "+logPath+"?follow=true HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(response.Body, make([]byte, len(log))); err != nil {
			t.Fatal(err)
		}
		close(read)
		time.Sleep(tellTimeout + time.Millisecond)
		synctest.Wait()
		if rest, err := io.ReadAll(conn); len(rest) > 0 {
			t.Errorf("read %q, %v after a second in which nothing was read", rest, err)
		}
	})
}

func TestAReaderThatGoesAwayEndsTheLog(t *testing.T) {
	ended := make(chan struct{})
	s := newSpoke(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	s.open(ctx, logPath+"?follow=true")
	leave()
	<-ended
}

func TestAReaderThatStopsHoldsUpNobodyElse(t *testing.T) {
	s := newSpoke(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("container") == "side" {
			_, _ = io.WriteString(w, "line\n")
			return
		}
		for line := make([]byte, 64<<10); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	for range 4 {
		s.open(t.Context(), logPath) // and reads nothing
	}
	if code, body := s.do(http.MethodGet, "/containerLogs/team/web/side", "t", nil); code != http.StatusOK || body != "line\n" {
		t.Errorf("answered %d %q", code, body)
	}
}

func TestWhatTheClusterRefusesIsToldInPlainText(t *testing.T) {
	says := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	cases := map[string]struct {
		reason string
		serve  http.HandlerFunc
		code   int
		text   string
	}{
		"its API server": {
			"the hub's API server takes text", says(400, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"container is waiting","reason":"BadRequest","code":400}`),
			400, "container is waiting",
		},
		"its kubelet": {
			"its API server has wrapped the text", says(500, `{"kind":"Status","status":"Failure","message":"an error on the server (\"boom\") has prevented the request","code":500,`+
				`"details":{"causes":[{"reason":"UnexpectedServerResponse","message":"boom"}]}}`), 500, "boom",
		},
		"something else":   {"text is passed on", says(502, "bad gateway"), 502, "bad gateway"},
		"no pod":           {"a kubelet says so", says(404, `{"kind":"Status","message":"pods \"web\" not found"}`), 404, `pod "web" does not exist`},
		"the agent":        {"it is not the caller who is unknown", says(401, "Unauthorized"), 502, "API server of the cluster does not accept the agent"},
		"a redirect":       {"it would lead astray on the hub", says(302, ""), 502, "cluster answered with a redirect, which is not passed on: 302"},
		"with an odd code": {"it is none", says(999, ""), 502, "cluster answered with no valid status code: 999"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if code, text := newSpoke(t, tc.serve).do(http.MethodGet, logPath, "t", nil); code != tc.code || text != tc.text {
				t.Errorf("%s: answered %d %q, want %d %q", tc.reason, code, text, tc.code, tc.text)
			}
		})
	}
}

// single is a listener of one connection. A server closes it once.
type single chan net.Conn

func (s single) Accept() (net.Conn, error) {
	conn, ok := <-s
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (s single) Close() error   { close(s); return nil }
func (s single) Addr() net.Addr { return &net.UnixAddr{} }

// inMemory serves the endpoint of a node without sockets, to everybody, and
// returns a connection to it.
func inMemory(t *testing.T, serve http.HandlerFunc) net.Conn {
	t.Helper()
	hub := tunneltest.NewHub(t, nil)
	hub.Authority.Lifetime = 24 * time.Hour
	hub.UseCertificate(hub.Authority.Issue(t, identity.Hub{ID: hub.Authority.HubID}.URI()))
	hub.Connect(t, "spoke1", map[string]http.Handler{tunnel.DoorKube: serve})
	s, err := New(Config{
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.ErrUnsupported },
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "apiserver"}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		}),
		Door: DoorFunc(func(ctx context.Context, cluster string) (http.RoundTripper, error) {
			return hub.Server.Sessions().Get(ctx, cluster)
		}),
		Pods: testPods{web()}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := s.newNodeServer(t.Context(), "spoke1")
	ours, theirs := net.Pipe()
	listener := single(make(chan net.Conn, 1))
	listener <- ours
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(connlimit.New(listener, connectionLimits()))
	}()
	t.Cleanup(func() {
		_ = theirs.Close()
		server.closeStreams()
		_ = server.Close()
		<-served
	})
	return theirs
}

func TestAStreamMayBeIdleForHours(t *testing.T) {
	const idle = 4*time.Hour - time.Minute
	cases := map[string]struct {
		reason, request string
		serve           http.HandlerFunc
	}{
		"a log": {
			"a container may say nothing for long", "GET " + logPath + "?follow=true HTTP/1.1\r\nHost: node\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).Flush()
				time.Sleep(idle)
				_, _ = io.WriteString(w, "late")
			},
		},
		"a log without an answer": {
			"a kubelet answers with the first line", "GET " + logPath + "?follow=true HTTP/1.1\r\nHost: node\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(idle)
				_, _ = io.WriteString(w, "late")
			},
		},
		"a stream": {
			"people leave shells open",
			"GET " + execPath + "&output=1 HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				time.Sleep(idle)
				_, _ = io.WriteString(conn, "late")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := inMemory(t, tc.serve)
				if _, err := io.WriteString(conn, tc.request); err != nil {
					t.Fatal(err)
				}
				reader := bufio.NewReader(conn)
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				var said io.Reader = response.Body
				if response.StatusCode == http.StatusSwitchingProtocols {
					said = reader
				}
				if got, err := io.ReadAll(io.LimitReader(said, 4)); string(got) != "late" || err != nil {
					t.Errorf("%s: read %q, %v", tc.reason, got, err)
				}
				_ = response.Body.Close()
			})
		})
	}
}

// TestAnIdleStreamHasNoHandler: net/http keeps two buffers and a deep stack for a
// handler that does not return, and thousands of streams are idle at once.
func TestAnIdleStreamHasNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(conn, conn)
		})
		const request = "GET " + execPath + "&output=1 HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(conn)
		if response, err := http.ReadResponse(reader, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("answered %v, %v", response, err)
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := reader.ReadString('\n'); got != "hello\n" || err != nil {
			t.Fatalf("read %q, %v", got, err)
		}
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := bytes.Count(stacks, []byte("kubelet.(*endpoint).ServeHTTP")); n > 0 {
			t.Errorf("%d handlers of an idle stream", n)
		}
		// The client's bytes are read by the goroutine of HTTP/2.
		if n := bytes.Count(stacks, []byte("internal/httpproxy.copyDirection(")); n != 1 {
			t.Errorf("%d goroutines copy, want one:\n%s", n, stacks)
		}
	})
}
