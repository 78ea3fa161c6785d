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

	"github.com/spokelet/spokelet/tunnel"
)

var errNotJoined = errors.New("this cluster has not joined its hub yet")

const (
	healthTimeout   = 10 * time.Second
	maxHealthHeader = 16 << 10
)

// session is the agent's connection.
type session interface{ Status() tunnel.Status }

// membership is the agent's place among the hub's clusters.
type membership interface{ Problem() error }

// health serves /healthz, /readyz and /metrics. The agent is ready while its
// session with the hub lives, or the hub has no use for one; else /readyz says
// why not.
type health struct {
	server     *http.Server
	session    atomic.Pointer[session]
	membership atomic.Pointer[membership]
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

// watch tells who knows what keeps the agent from joining.
func (h *health) watch(m membership) { h.membership.Store(&m) }

func (h *health) ready(w http.ResponseWriter, _ *http.Request) {
	reason := errNotJoined
	if s := h.session.Load(); s != nil {
		status := (*s).Status()
		// A hub of the release before keeps no session with a standby, which is as
		// ready as it can be then, and must not hold up a rollout.
		if status.Connected || errors.Is(status.Err, tunnel.ErrStandby) {
			return
		}
		reason = fmt.Errorf("no session with the hub: %w", status.Err)
	}
	text := reason.Error()
	if m := h.membership.Load(); m != nil {
		if problem := (*m).Problem(); problem != nil {
			text += "\n" + problem.Error()
		}
	}
	http.Error(w, text, http.StatusServiceUnavailable)
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
