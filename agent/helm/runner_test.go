// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/api/wire"
)

// binary is a program that behaves as is said; see pretend.
func binary(t *testing.T, as string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "helm")
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' exec '%s'\n", fakeVariable, as, self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// cluster is a fake API server that records requests.
type cluster struct {
	*httptest.Server
	refuses error

	mu       sync.Mutex
	requests []string // guarded by mu
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests = append(c.requests, r.Method+" "+r.URL.Path+" as "+r.Header.Get("Impersonate-User"))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Config is the door: it says who asks, as the kube door does.
func (c *cluster) Config(r wire.Requester) (*rest.Config, error) {
	if c.refuses != nil {
		return nil, c.refuses
	}
	return &rest.Config{Host: c.URL, Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		request.Header.Set("Impersonate-User", "hub:"+r.User)
		return http.DefaultTransport.RoundTrip(request)
	})}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// run runs a program once.
type run struct {
	runner   *Runner
	progress []string
	begun    int
	begin    error
}

func newRun(t *testing.T, c *cluster, as string, change func(*Config)) *run {
	t.Helper()
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	cfg := Config{
		Binary: binary(t, as), Door: c, Allowed: []string{"https://c.example.com"}, Logger: testr.New(t), extraTime: 20 * time.Second,
		Memory: 8 << 30, // the race detector has much, and writes little of it
	}
	if change != nil {
		change(&cfg)
	}
	runner, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &run{runner: runner}
}

func (r *run) do(ctx context.Context, timeout time.Duration) (message.Answer, error) {
	return r.runner.Run(ctx, wire.Requester{User: "alice"}, message.Request{Verb: message.Install, Name: "web", Timeout: timeout}, Events{
		BeforeChange: func(context.Context) error { r.begun++; return r.begin },
		Progress:     func(what string) { r.progress = append(r.progress, what) },
	})
}

func TestProcessActsAsRequester(t *testing.T) {
	c := newCluster(t)
	t.Setenv("TOKEN", "secret")
	t.Setenv("HTTPS_PROXY", "http://proxy")
	r := newRun(t, c, "works", nil)
	answer, err := r.do(t.Context(), time.Minute)
	if err != nil || answer.Release == nil {
		t.Fatalf("got %+v, %v", answer, err)
	}
	const path = "/api/v1/namespaces/a/configmaps/web as hub:alice"
	if diff := cmp.Diff([]string{"GET " + path, "POST " + path, "PATCH " + path}, c.seen()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if answer.Release.Status != "200 200 200" || r.begun != 1 {
		t.Errorf("answers %q, begun %d times", answer.Release.Status, r.begun)
	}
	if diff := cmp.Diff([]string{"reading", "creating"}, r.progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if env := answer.Release.Description; strings.Contains(env, "secret") || !strings.Contains(env, "HTTPS_PROXY=http://proxy") || !strings.Contains(env, "GOMEMLIMIT=") {
		t.Errorf("environment %q", env)
	}
}

func TestFailedBeforeChangePreventsChange(t *testing.T) {
	c := newCluster(t)
	r := newRun(t, c, "works", nil)
	r.begin = errors.New("no action log")
	if _, err := r.do(t.Context(), time.Minute); !errors.Is(err, r.begin) {
		t.Errorf("got %v, want that of the begin", err)
	}
	if diff := cmp.Diff([]string{"GET /api/v1/namespaces/a/configmaps/web as hub:alice"}, c.seen()); diff != "" || r.begun != 1 {
		t.Errorf("begun %d times, requests (-want +got):\n%s", r.begun, diff)
	}
}

func TestRunReturnsFailure(t *testing.T) {
	r := newRun(t, newCluster(t), "fails", nil)
	answer, err := r.do(t.Context(), time.Minute)
	if err != nil || answer.Failure == nil || answer.Failure.Message != "no chart" || r.begun != 0 {
		t.Errorf("got %+v, %v, begun %d times", answer, err, r.begun)
	}
}

func TestRunReportsProcessThatEndsWithoutAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*Config)
		want   string
	}{
		"ends":           {reason: "it says nothing", want: "exit status 3"},
		"eats":           {reason: "the limit is its own", change: func(c *Config) { c.Memory = 128 << 20 }, want: "it may use 128 MiB"},
		"babbles":        {reason: "nobody understands it", want: "invalid character"},
		"talks for ever": {reason: "a line is bounded", want: "token too long"},
		"hangs":          {reason: "its time is bounded", change: func(c *Config) { c.extraTime = 3 * time.Second }, want: "it took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, newCluster(t), name, tc.change)
			_, err := r.do(t.Context(), 300*time.Millisecond)
			if !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q: %s", err, ErrEnded, tc.want, tc.reason)
			}
		})
	}
}

func TestOpenFilesOfProcessAreLimited(t *testing.T) {
	r := newRun(t, newCluster(t), "opens files", nil)
	if answer, err := r.do(t.Context(), time.Minute); err != nil || answer.Failure == nil || !strings.HasSuffix(answer.Failure.Message, " files") {
		t.Errorf("got %+v, %v", answer, err)
	}
}

func TestProcessEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newRun(t, newCluster(t), "hangs", nil)
	time.AfterFunc(3*time.Second, cancel) // it has been started by then
	if _, err := r.do(ctx, time.Minute); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v, want %v", err, ErrEnded)
	}
}

func TestRunStartsNoProcessForRefusedRequester(t *testing.T) {
	c := newCluster(t)
	c.refuses = errors.New("the door is closed")
	var refused *refusals.AccessError
	if _, err := newRun(t, c, "works", nil).do(t.Context(), time.Minute); !errors.As(err, &refused) || !errors.Is(err, c.refuses) {
		t.Errorf("got %v, want the door's refusal", err)
	}
	none := newRun(t, c, "works", func(c *Config) { c.Allowed = nil })
	if _, err := none.do(t.Context(), time.Minute); !errors.Is(err, ErrNotEnabled) || !strings.Contains(err.Error(), "helm.charts") {
		t.Errorf("got %v, want %v", err, ErrNotEnabled)
	}
	missing := newRun(t, newCluster(t), "works", func(c *Config) { c.Binary = "/nonexistent" })
	if _, err := missing.do(t.Context(), time.Minute); err == nil || errors.Is(err, ErrEnded) {
		t.Errorf("got %v, want an error of the start", err)
	}
}

func TestNewRequiresBinaryAndDoor(t *testing.T) {
	if _, err := New(Config{Logger: logr.Discard()}); err == nil {
		t.Error("it is taken without")
	}
}

func TestHeapLimitIsBelowMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		reason       string
		memory, want int64
	}{
		"the default": {reason: "a program in Go uses more than its heap", memory: DefaultMemory, want: 112 << 20},
		"little":      {reason: "a heap needs some", memory: 128 << 20, want: 64 << 20},
		"much":        {reason: "what else is used stays the same", memory: 1 << 30, want: 944 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if got := heapLimit(tc.memory); got != tc.want {
				t.Errorf("got %d MiB, want %d MiB: %s", got>>20, tc.want>>20, tc.reason)
			}
		})
	}
}
