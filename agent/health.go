// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	healthTimeout   = 10 * time.Second
	maxHealthHeader = 16 << 10
)

// session says whether the agent is connected.
type session interface{ Ready() bool }

// health serves /healthz, /readyz and /metrics. The agent is ready while its
// session with the hub lives.
type health struct {
	server  *http.Server
	session atomic.Pointer[session]
}

func newHealth(address string, registry *prometheus.Registry) *health {
	h := &health{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", h.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	h.server = &http.Server{
		Addr:              address,
		Handler:           mux,
		ReadHeaderTimeout: healthTimeout,
		ReadTimeout:       healthTimeout,
		WriteTimeout:      healthTimeout,
		IdleTimeout:       healthTimeout,
		MaxHeaderBytes:    maxHealthHeader,
	}
	return h
}

// follow makes readiness that of a session.
func (h *health) follow(s session) { h.session.Store(&s) }

func (h *health) ready(w http.ResponseWriter, _ *http.Request) {
	s := h.session.Load()
	if s == nil {
		http.Error(w, "this cluster has not joined its hub yet", http.StatusServiceUnavailable)
		return
	}
	if (*s).Ready() {
		return
	}
	http.Error(w, "no session with the hub", http.StatusServiceUnavailable)
}

// serve serves until ctx ends.
func (h *health) serve(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", h.server.Addr)
	if err != nil {
		return fmt.Errorf("health port: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = h.server.Close() })
	defer stop()
	if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health port: %w", err)
	}
	return nil
}
