// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProbeReportsStatus(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		http.Error(w, "tunnel: not connected", http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		path   string
		err    string
	}{
		"ready":     {reason: "200 is a success", path: "/readyz"},
		"not ready": {reason: "the answer's own words reach the reader", path: "/other", err: "tunnel: not connected"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := Probe()
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs([]string{host, port, tc.path})
			err := cmd.ExecuteContext(t.Context())
			if (err != nil) != (tc.err != "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.err)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestClientHasNoRateLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
		clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: a}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := (&Flags{Kubeconfig: path}).Client("spokelet-hub")
	if err != nil {
		t.Fatal(err)
	}
	// 0 would be client-go's 5 requests a second, for leases and pods together.
	if cfg.QPS >= 0 || cfg.RateLimiter != nil {
		t.Errorf("a client has %v requests a second", cfg.QPS)
	}
}
