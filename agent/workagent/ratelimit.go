// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"fmt"
	"net/http"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// limitRate makes every request of a configuration's clients wait for its turn, if
// there is a limit. It stands in the transport, where it holds for all of them
// together. Leases are renewed without: a term must not end because much is done.
func limitRate(cfg *rest.Config, l Limit) {
	if l.QPS <= 0 {
		return
	}
	turns := rate.NewLimiter(rate.Limit(l.QPS), max(l.Burst, 1))
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return rateLimitedTransport{next: next, limiter: turns}
	})
}

type rateLimitedTransport struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (l rateLimitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.limiter.Wait(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("wait for the rate limit: %w", err)
	}
	return l.next.RoundTrip(r)
}

// WrappedRoundTripper lets idle connections be closed.
func (l rateLimitedTransport) WrappedRoundTripper() http.RoundTripper { return l.next }
