// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// fakeRegistry is a registry in memory. What real ones answer is tested in live_test.go.
type fakeRegistry struct {
	host string

	mu    sync.Mutex
	asked []string                                               // guarded by mu
	fault func(w http.ResponseWriter, r *http.Request) (is bool) // guarded by mu
	auth  string                                                 // guarded by mu: the last Authorization
}

// start serves it, and returns a Registry of it.
func (f *fakeRegistry) start(t *testing.T, change ...func(*Config)) *Registry {
	t.Helper()
	inner := fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.Path)
		f.auth = r.Header.Get("Authorization")
		fault := f.fault
		f.mu.Unlock()
		if fault == nil || !fault(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	f.host = strings.TrimPrefix(server.URL, "http://")
	config := Config{Push: f.host + "/workers", Runtime: f.host + "/runtime:1", Insecure: true}
	for _, apply := range change {
		apply(&config)
	}
	return newRegistry(t, config)
}

func newRegistry(t *testing.T, config Config) *Registry {
	t.Helper()
	config.Backoff = time.Millisecond
	r, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func (f *fakeRegistry) breakWith(fault func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// requests returns those since it was last asked.
func (f *fakeRegistry) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *fakeRegistry) authorization() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.auth
}

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(100, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func digestOf(t *testing.T, image interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

// put writes an image as somebody else does.
func put(t *testing.T, where string, image remote.Taggable, options ...name.Option) {
	t.Helper()
	reference, err := name.ParseReference(where, options...)
	if err != nil {
		t.Fatal(err)
	}
	// The library's own transport keeps connections.
	once := &http.Transport{DisableKeepAlives: true}
	if err := remote.Push(reference, image, remote.WithTransport(once)); err != nil {
		t.Fatal(err)
	}
}
