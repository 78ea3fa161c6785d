// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxAnswer bounds what a cluster may answer. It says of its nodes as many
// figures as of one, and of no pods.
const maxAnswer = 1 << 20

const (
	pathHealthz = "/healthz"
	pathMetrics = "/metrics/resource"
	pathStats   = "/stats/summary"
)

var errAnswer = errors.New("the cluster's answer is too large")

// endpoint answers for one node.
type endpoint struct {
	node   string
	config Config
}

// ServeHTTP authenticates, authorizes and routes, in this order.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := e.authenticate(r)
	if !ok {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	if !e.authorize(r, who) {
		http.Error(w, "Forbidden", http.StatusForbidden)
		return
	}
	welcome(r.Context())
	// Paths are compared and never cleaned: what was authorized is what is served.
	switch path := r.URL.Path; {
	case path != pathHealthz && path != pathMetrics && path != pathStats:
		http.NotFound(w, r)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case path == pathHealthz:
		e.healthz(w, r)
	case path == pathMetrics:
		// The type that kubelets give, and the one that clients parse by.
		e.figures(w, r, path, "text/plain; version=0.0.4; charset=utf-8")
	default:
		e.figures(w, r, path, "application/json")
	}
}

// healthz is well while the cluster is connected.
func (e *endpoint) healthz(w http.ResponseWriter, r *http.Request) {
	if _, err := e.config.Door.RoundTripper(r.Context(), e.node); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok")
}

// figures answers with what the cluster says now.
func (e *endpoint) figures(w http.ResponseWriter, r *http.Request, path, contentType string) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	way, err := e.config.Door.RoundTripper(ctx, e.node)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	body, err := ask(ctx, way, path)
	if err != nil {
		http.Error(w, fmt.Sprintf("cluster %s: %v", e.node, err), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // a client that went away needs no answer
}

// ask returns the answer once it is whole: half of one would be read as all.
func ask(ctx context.Context, way http.RoundTripper, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("request cannot be made: %w", err)
	}
	response, err := way.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("answer was cut off: %w", err)
	case len(body) > maxAnswer:
		return nil, errAnswer
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("agent answered %d: %.200q", response.StatusCode, body)
	}
	return body, nil
}
