// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/quota"
	"github.com/spokelet/spokelet/workers/store/storetest"
	"github.com/spokelet/spokelet/workers/version"
)

// large is a store whose every answer has 100 bytes more than is said.
type large struct{ *storetest.Memory }

func (l large) Names(ctx context.Context, prefix, folder string, most int) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://store", nil)
	if err != nil {
		return nil, err
	}
	answer, err := quota.Transport(l).RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return nil, err
	}
	return l.Memory.Names(ctx, prefix, folder, most)
}

func (large) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 100)))}, nil
}

func TestRequestReadsCountUntilAnswered(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		bytes  int64
		status int
	}{
		"enough":   {"each request gives back what it read", 5000, http.StatusOK},
		"too much": {"one that has no room is told so", 200, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t)
			store := large{w.bucket}
			versions := version.NewRepository(store, store, "workers")
			w.api.config.Deployer = deployer.New(deployer.Config{
				Client: w.hub.(client.WithWatch), Versions: versions, History: versions, Bucket: "workers", Memory: quota.New(tc.bytes, tc.bytes),
			})
			for range 60 { // of 300 bytes each
				if got := w.ask(t, "jane", http.MethodGet, hello+"/versions", nil); got.status != tc.status {
					t.Fatalf("%s: %d %s", tc.reason, got.status, got.raw)
				}
			}
		})
	}
}
