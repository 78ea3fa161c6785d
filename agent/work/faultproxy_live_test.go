// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// faultProxy stands between an engine and its API server and does what networks, load
// balancers and broken API servers do.
type faultProxy struct {
	t      *testing.T
	server *httptest.Server
	dialer livetest.Connections

	mu sync.Mutex
	// fault answers a request in place of the API server when it returns true.
	// Guarded by mu.
	fault func(http.ResponseWriter, *http.Request) bool
	// down refuses connections; guarded by mu.
	down bool
	// watchLife ends watches early when it is not 0; guarded by mu.
	watchLife time.Duration
	// life ends with cut; guarded by mu.
	life context.Context
	cut  context.CancelFunc
	// seen counts requests by what they do; guarded by mu.
	seen map[string]int
}

// front puts one in the way of an engine.
func (c *testCluster) front() *faultProxy {
	c.t.Helper()
	transport, err := rest.TransportFor(c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	host, err := url.Parse(c.cfg.Host)
	if err != nil {
		c.t.Fatal(err)
	}
	f := &faultProxy{t: c.t, seen: map[string]int{}}
	f.life, f.cut = context.WithCancel(c.t.Context())
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(host) },
		Transport: transport,
		// A watch ends with its connection, and that is what is tested.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(proxy, w, r) }))
	c.t.Cleanup(func() {
		f.dialer.Close()
		f.server.Close()
		f.cut()
	})
	return f
}

// through makes an engine take the way by the front.
func (f *faultProxy) through(cfg *Config) {
	cfg.REST = &rest.Config{Host: f.server.URL, QPS: -1, Dial: f.dial}
}

func (f *faultProxy) serve(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault, watchLife, life := f.fault, f.watchLife, f.life
	f.seen[kindOf(r)]++
	f.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if r.URL.Query().Get("watch") == "" {
		proxy.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	if watchLife > 0 {
		defer time.AfterFunc(watchLife, cancel).Stop()
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// kindOf tells requests that cost an API server little from those that do not.
func kindOf(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method != http.MethodGet:
		return "write"
	case q.Get("watch") != "" && q.Get("sendInitialEvents") == "true":
		return "list"
	case q.Get("watch") != "":
		return "watch"
	case strings.Count(r.URL.Path, "/") < 4: // /api/v1, /apis/<group>/<version>
		return "discovery"
	case q.Get("limit") != "":
		return "list"
	default:
		return "get"
	}
}

// dial counts also what does not get through.
func (f *faultProxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	down := f.down
	if down {
		f.seen["refused"]++
	}
	f.mu.Unlock()
	if down {
		address = deadAddress
	}
	return f.dialer.Dial(ctx, network, address)
}

// deadAddress refuses connections: nobody listens on a port that is reserved.
const deadAddress = "127.0.0.1:1"

// stop cuts all connections and refuses new ones, as a stopped API server does.
func (f *faultProxy) stop() {
	f.mu.Lock()
	f.down = true
	f.mu.Unlock()
	f.dialer.Close()
}

func (f *faultProxy) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
}

// answer has every request answered by fault, or again by the API server.
func (f *faultProxy) answer(fault func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// endWatchesAfter ends every watch that long after it began, and those that are
// open at once. Other requests are left alone: one whose answer is cut off is
// sent again, and would count.
func (f *faultProxy) endWatchesAfter(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchLife = d
	f.cut()
	f.life, f.cut = context.WithCancel(f.t.Context())
}

// reset forgets what was counted and returns it.
func (f *faultProxy) reset() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.seen
	f.seen = map[string]int{}
	return seen
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// with answers every request in the same way.
func with(code int, contentType, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body) // of a client that may have gone
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
		return true
	}
}
