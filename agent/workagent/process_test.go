// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
)

func TestWaitForChangeNamesFile(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(t *testing.T, file string)
	}{
		"other content":   {"a kubeconfig was written anew", func(t *testing.T, file string) { write(t, file, "new") }},
		"it is gone":      {"nothing can be read from it", func(t *testing.T, file string) { remove(t, file) }},
		"its link moves":  {"so the kubelet replaces a Secret", func(t *testing.T, file string) { remove(t, file); link(t, file) }},
		"another appears": {"a file may come later", func(t *testing.T, file string) { write(t, file+".later", "new") }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "kubeconfig")
			write(t, file, "old")
			synctest.Test(t, func(t *testing.T) {
				got := make(chan string, 1)
				go func() { got <- waitForChange(t.Context(), []string{file, file + ".later"}) }()
				<-time.After(10 * fileInterval)
				synctest.Wait()
				if len(got) > 0 {
					t.Errorf("nothing has changed: %s", <-got)
				}
				c.change(t, file)
				<-time.After(fileInterval)
				synctest.Wait()
				if len(got) != 1 {
					t.Fatalf("%s: it goes on", c.reason)
				}
			})
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, file string) {
	t.Helper()
	write(t, file+".data", "new")
	if err := os.Symlink(file+".data", file); err != nil {
		t.Fatal(err)
	}
}

// healthPort serves health and metrics until stop, which returns how that ended.
func healthPort(t *testing.T, bounds TLS) (address string, stop func() error) {
	t.Helper()
	at := make(chan string, 1)
	log := funcr.New(func(_, args string) {
		_, text, _ := strings.Cut(args, `"address"="`)
		at <- strings.TrimSuffix(text, `"`)
	}, funcr.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	go func() { done <- serveHealth(ctx, "127.0.0.1:0", bounds, registry, log) }()
	return <-at, func() error {
		cancel()
		return <-done
	}
}

func TestHealthIsServedWithAndWithoutTLS(t *testing.T) {
	at, stop := healthPort(t, TLS{})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	for _, url := range []string{"http://" + at + "/healthz", "https://" + at + "/healthz", "http://" + at + "/metrics", "https://" + at + "/metrics"} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || strings.HasSuffix(url, "metrics") != strings.Contains(string(text), "go_goroutines") {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
	silent, err := net.Dial("tcp", at) // neither speaks nor goes: it must not hold up the end
	if err != nil {
		t.Fatal(err)
	}
	transport.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	_ = silent.Close()
}

func TestHealthTLSFollowsConfig(t *testing.T) {
	const suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
	cases := map[string]struct {
		reason  string
		version string
		suites  []string
		// most is the highest version of the client, want what is spoken; 0 is nothing.
		most, want uint16
		suite      string
	}{
		"nothing asked":      {reason: "it is OCM's default", most: tls.VersionTLS12, want: tls.VersionTLS12},
		"an old client":      {reason: "it is below the default", most: tls.VersionTLS11},
		"a version":          {reason: "a client below it is refused", version: "VersionTLS13", most: tls.VersionTLS12},
		"the version itself": {reason: "it is what was asked for", version: "VersionTLS13", most: tls.VersionTLS13, want: tls.VersionTLS13},
		"an old version":     {reason: "it was asked for", version: "VersionTLS11", most: tls.VersionTLS11, want: tls.VersionTLS11},
		"a suite":            {reason: "no other is spoken", suites: []string{suite}, most: tls.VersionTLS12, want: tls.VersionTLS12, suite: suite},
		"another suite":      {reason: "the key is of another kind", suites: []string{"TLS_RSA_WITH_AES_128_CBC_SHA"}, most: tls.VersionTLS12},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bounds, err := parseTLS(c.version, c.suites)
			if err != nil {
				t.Fatal(err)
			}
			at, stop := healthPort(t, bounds)
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: c.most}}
			conn, err := dialer.DialContext(t.Context(), "tcp", at)
			if (err == nil) != (c.want != 0) {
				t.Errorf("%s: %v", c.reason, err)
			}
			if err == nil {
				state := conn.(*tls.Conn).ConnectionState()
				if state.Version != c.want || c.suite != "" && tls.CipherSuiteName(state.CipherSuite) != c.suite {
					t.Errorf("%s: %s, %s", c.reason, tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite))
				}
				_ = conn.Close()
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHealthWithoutAddressIsNotServed(t *testing.T) {
	if err := serveHealth(t.Context(), "", TLS{}, prometheus.NewRegistry(), logr.Discard()); err != nil {
		t.Error(err)
	}
}

func TestRequiredCRDsFollowConfig(t *testing.T) {
	for namespace, want := range map[string]int{"": 1, "works": 2} {
		cfg := Config{WorkNamespace: namespace}
		if set, served := requiredCRDs(cfg), cfg.dialects(); len(set) != want || len(served) != want {
			t.Errorf("with works in %q: %v, %v", namespace, set, served)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLimitRateDelaysRequests(t *testing.T) {
	cases := map[string]struct {
		reason string
		limit  Limit
		want   time.Duration
	}{
		"no limit":    {"the API server has its own", Limit{Burst: 1}, 0},
		"a limit":     {"two at once, then one a second", Limit{QPS: 1, Burst: 2}, 3 * time.Second},
		"no burst":    {"there is always one", Limit{QPS: 1}, 4 * time.Second},
		"a high rate": {"five fit into the burst", Limit{QPS: 50, Burst: 100}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := &rest.Config{}
				limitRate(cfg, c.limit)
				var transport http.RoundTripper = roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{}, nil })
				if cfg.WrapTransport != nil {
					transport = cfg.WrapTransport(transport)
				}
				began := time.Now()
				for range 5 {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x", nil)
					if _, err := transport.RoundTrip(r); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("%s: five took %s, want %s", c.reason, took, c.want)
				}
			})
		})
	}
}

func TestLimitRateReturnsOnCanceledRequest(t *testing.T) {
	cfg := &rest.Config{}
	limitRate(cfg, Limit{QPS: 0.001, Burst: 1})
	var sent atomic.Int64
	transport := cfg.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) { sent.Add(1); return &http.Response{}, nil }))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://x", strings.NewReader("body"))
		_, err := transport.RoundTrip(r)
		if err != nil && sent.Load() != 1 {
			t.Error(err)
		}
		cancel()
	}
	if sent.Load() != 1 {
		t.Errorf("%d requests were sent", sent.Load())
	}
}

func schemaOf(length int) string {
	properties := func(name string, of any) map[string]any {
		return map[string]any{"properties": map[string]any{name: of}}
	}
	list := func(of any) map[string]any { return map[string]any{"items": of} }
	schema := properties("status", properties("resourceStatus", properties("manifests", list(
		properties("statusFeedback", properties("values", list(
			properties("fieldValue", properties("jsonRaw", map[string]any{"maxLength": length})))))))))
	text, _ := json.Marshal(map[string]any{"components": map[string]any{"schemas": map[string]any{"other": map[string]any{}, "io.ManifestWork": schema}}})
	return string(text)
}

func TestRawLengthIsLimitedByHubSchema(t *testing.T) {
	cases := map[string]struct {
		reason string
		code   int
		body   string
		asked  int32
		want   int
	}{
		"more than there is room for": {"the whole status would be refused", 200, schemaOf(1024), 4096, 1024},
		"a hub with more room":        {"it is what was asked for", 200, schemaOf(8192), 4096, 4096},
		"less than there is room for": {"it is what was asked for", 200, schemaOf(1024), 100, 100},
		"a hub that does not tell":    {"it is supposed to be OCM's", 403, "", 4096, 1024},
		"a schema without a length":   {"it is supposed to be OCM's", 200, "{}", 4096, 1024},
		"a schema that is none":       {"it is supposed to be OCM's", 200, "[", 4096, 1024},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/openapi/v3/apis/work.open-cluster-management.io/v1" {
					t.Errorf("path %s", r.URL.Path)
				}
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			all, err := kinds(Config{Hub: &rest.Config{Host: server.URL, QPS: -1}, Cluster: "c"})
			if err != nil {
				t.Fatal(err)
			}
			if got := limitRawLength(t.Context(), all[0].client, c.asked, logr.Discard()); got != c.want {
				t.Errorf("%s: %d, want %d", c.reason, got, c.want)
			}
			closeIdleConnections(&rest.Config{Host: server.URL})
		})
	}
}

func TestFrequentStatusesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p ratelimit.KeyedLimiter[wire.WorkKey]
		key := wire.WorkKey{Name: "hot"}
		began, writes := time.Now(), 0
		for time.Since(began) < 10*time.Second {
			if wait := p.Delay(key); wait > 0 {
				<-time.After(wait)
				continue
			}
			p.Spend(key, 0)
			writes++
		}
		if most := ratelimit.Burst + 10*ratelimit.PerSecond; writes > most || writes < most-1 {
			t.Errorf("%d writes in 10 s, want %d", writes, most)
		}
		if p.Delay(wire.WorkKey{Name: "calm"}) != 0 {
			t.Error("another work waits")
		}
		p.Forget(key)
		if p.Delay(key) != 0 {
			t.Error("a new work of the name waits")
		}
	})
}
