// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/agent/work"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// leaseName is that of OCM's work agent: whichever holds it, only one of the two
// works.
const leaseName = "work-agent-lock"

var (
	errLeaseLost   = errors.New("lease was lost")
	errFileChanged = errors.New("file has changed")
)

// Run executes the works of one cluster until ctx ends, the Lease is lost or one
// of the files changes; only the second is an error. What was begun is ended
// before it returns, and the Lease is given up.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("work agent: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	defer closeIdleConnections(cfg.Spoke, cfg.Hub)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveHealth(ctx, cfg.Listen, cfg.TLS, registry, cfg.Logger) })
	if len(cfg.TerminateOnFiles) > 0 {
		group.Go(func() error {
			if name := waitForChange(ctx, cfg.TerminateOnFiles); name != "" {
				cfg.Logger.Info("a file has changed: this process ends", "file", name)
				return errFileChanged
			}
			return nil
		})
	}
	group.Go(func() error { return runElected(ctx, cfg, registry) })
	if err := group.Wait(); err != nil && !errors.Is(err, errFileChanged) {
		return err
	}
	return nil
}

// closeIdleConnections gives up the connections that clients of these configurations share.
func closeIdleConnections(configs ...*rest.Config) {
	for _, cfg := range configs {
		if pool, err := rest.HTTPClientFor(cfg); err == nil {
			utilnet.CloseIdleConnectionsFor(pool.Transport)
		}
	}
}

// runElected serves one term: at once without an election, or when the Lease is held. A
// process whose Lease was lost ends, and begins anew as another.
func runElected(ctx context.Context, cfg Config, registry *prometheus.Registry) error {
	if !cfg.LeaderElection {
		return runTerm(ctx, cfg, registry)
	}
	kube, err := kubernetes.NewForConfig(cfg.Spoke)
	if err != nil {
		return fmt.Errorf("client of the spoke: %w", err)
	}
	holder, err := lease.New(lease.Config{
		Client: kube.CoordinationV1(), Namespace: cfg.Namespace, Name: leaseName,
		Identity: cfg.Process, Timing: cfg.Lease, Logger: cfg.Logger.WithName("lease"),
	})
	if err != nil {
		return err
	}
	cfg.Spoke, cfg.Hub = rest.CopyConfig(cfg.Spoke), rest.CopyConfig(cfg.Hub)
	cfg.Spoke.Wrap(holder.Guard) // nothing goes out while the Lease is not held
	cfg.Hub.Wrap(holder.Guard)
	candidate, withdraw := context.WithCancelCause(ctx)
	defer withdraw(nil)
	err = holder.Run(candidate, func(held context.Context) error {
		err := runTerm(held, cfg, registry)
		withdraw(cmp.Or(err, errLeaseLost))
		return err
	})
	if err == nil && ctx.Err() == nil {
		err = context.Cause(candidate)
	}
	return err
}

// runTerm joins an engine to the hub until ctx ends.
func runTerm(ctx context.Context, cfg Config, registry *prometheus.Registry) error {
	cfg.Spoke, cfg.Hub = rest.CopyConfig(cfg.Spoke), rest.CopyConfig(cfg.Hub)
	limitRate(cfg.Spoke, cfg.SpokeLimit)
	limitRate(cfg.Hub, cfg.HubLimit)
	h, err := newHub(cfg, registry)
	if err != nil {
		return err
	}
	engine, err := newEngine(ctx, cfg, h, registry)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return engine.Run(ctx) })
	group.Go(func() error { return h.run(ctx, engine.Receiver()) })
	return group.Wait()
}

func newEngine(ctx context.Context, cfg Config, h *hub, registry *prometheus.Registry) (*work.Engine, error) {
	dyn, err := dynamic.NewForConfig(cfg.Spoke)
	if err != nil {
		return nil, fmt.Errorf("client of the spoke: %w", err)
	}
	kube, err := kubernetes.NewForConfig(cfg.Spoke)
	if err != nil {
		return nil, fmt.Errorf("client of the spoke: %w", err)
	}
	installCRDs(ctx, dyn, requiredCRDs(cfg), cfg.Logger)
	hash := workconvert.HubHash(cfg.Hub.Host)
	values := feedback.Options{RawJSON: cfg.RawFeedback, MaxRawLength: int(cfg.MaxJSONRawLength)}
	if cfg.RawFeedback { // the one thing that the length is for
		values.MaxRawLength = limitRawLength(ctx, h.kinds[0].client, cfg.MaxJSONRawLength, cfg.Logger)
	}
	return work.New(work.Config{
		REST:          cfg.Spoke,
		HubID:         hubID(cfg.AgentID, hash),
		Namespace:     findCopyNamespace(ctx, kube, cfg.Namespace, cfg.Logger),
		EvictionGrace: cfg.EvictionGrace,
		Dialects:      cfg.dialects(),
		HubHash:       hash,
		AgentID:       cfg.AgentID,
		Cluster:       cfg.Cluster,
		Feedback:      values,

		ExecutorCaches: cfg.ExecutorCaches,

		Reporter:   h,
		Workers:    cfg.Workers,
		Logger:     cfg.Logger.WithName("work"),
		Registerer: registry,
	})
}

// hubID marks anchors. It is the agent's, if it has an id: what it applied for a
// hub at another URL is still its own, and is evicted.
func hubID(agentID, hash string) string {
	if agentID == "" {
		agentID = hash
	}
	sum := sha256.Sum256([]byte(agentID))
	return "work-agent-" + hex.EncodeToString(sum[:16])
}
