// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net/http"
	"testing"

	"github.com/spokelet/spokelet/api/wire"
)

// headerOf is a session that remembers the label that it was sent.
type headerOf struct {
	nodeSession
	label string
}

func (h *headerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	h.label = r.Header.Get(wire.SplitLabelHeader)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestMetricsRequestsHaveSplitLabel(t *testing.T) {
	cases := map[string]struct {
		reason, label, url, want string
	}{
		"figures":         {reason: "the agent answers for the rest alone", label: "example.com/pool", url: "http://node/stats/summary", want: "example.com/pool"},
		"without consent": {reason: "the agent answers for all nodes", url: "http://node/stats/summary"},
		"an API server":   {reason: "it is none of its business", label: "example.com/pool", url: "http://kube/api"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			seen := &headerOf{}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := labelingSession{seen, tc.label}.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil || seen.label != tc.want || request.Header.Get(wire.SplitLabelHeader) != "" {
				t.Errorf("%s: sent %q, want %q, request %v, %v", tc.reason, seen.label, tc.want, request.Header, err)
			}
		})
	}
}
