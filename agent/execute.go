// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/agent/work"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// leaseName is the Lease of the process that executes works.
const leaseName = "spokelet-agent"

var errHandedOver = fmt.Errorf("%w: works are no more executed by this process", resource.ErrSuperseded)

// standbys is the tunnel, as far as it tells the hub of this process's role.
type standbys interface{ SetStandby(standby bool) }

// syncDoor is the door of Sync: open while somebody is in it.
type syncDoor struct {
	mu      sync.Mutex
	handler http.Handler    // guarded by mu; nil while nobody is in
	life    context.Context // guarded by mu; ends when the handler leaves
}

// enter lets a handler serve the door until leave ends its streams.
func (d *syncDoor) enter(h http.Handler) (leave func()) {
	life, cancel := context.WithCancelCause(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handler, d.life = h, life
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.handler = nil
		cancel(errHandedOver)
	}
}

// ServeHTTP answers 503 while nobody is in.
func (d *syncDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	handler, life := d.handler, d.life
	d.mu.Unlock()
	if handler == nil {
		http.Error(w, tunnel.ErrStandby.Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	handler.ServeHTTP(w, r.WithContext(ctx))
}

// addWork makes this process a candidate for executing works.
func (a *agent) addWork(ctx context.Context) error {
	if !*a.opts.Config.Work.Enabled {
		return nil
	}
	dyn, err := dynamic.NewForConfig(a.opts.Client)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	if err := crds.Install(ctx, dyn, crds.Agent()); err != nil {
		return err
	}
	a.lease, err = lease.New(lease.Config{
		Client:    a.kube.CoordinationV1(),
		Namespace: a.opts.Config.Namespace,
		Name:      leaseName,
		Identity:  a.opts.Process,
		Logger:    a.opts.Logger.WithName("lease"),
	})
	if err != nil {
		return err
	}
	a.parts = append(a.parts, func(ctx context.Context) error { return a.lease.Run(ctx, a.execute) })
	return nil
}

// execute runs a work engine while this process holds the lease, and joins it to
// the hub. An engine serves one term.
func (a *agent) execute(ctx context.Context) error {
	term := &termMetrics{Registerer: a.registry}
	defer term.clear()
	engine, err := a.newEngine(term)
	if err != nil {
		return err
	}
	sync, err := resource.NewAgent(
		append(slices.Clone(a.sources), engine.Source()), []*resource.Mirror{engine.Mirror()})
	if err != nil {
		return err
	}
	return serveTerm(ctx, a.tunnel, &a.sync, sync, engine.Run)
}

// serveTerm tells the hub that this process executes, for as long as it does.
func serveTerm(ctx context.Context, hub standbys, door *syncDoor, sync http.Handler, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	leave := door.enter(sync)
	hub.SetStandby(false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		hub.SetStandby(true)
		leave()
	}()
	err := run(ctx)
	cancel()
	<-ended
	return err
}

func (a *agent) newEngine(registerer prometheus.Registerer) (*work.Engine, error) {
	cfg := a.opts.Config.Work
	client := rest.CopyConfig(a.opts.Client)
	client.Wrap(a.lease.Guard)
	return work.New(work.Config{
		REST:          client,
		Impersonate:   cfg.ServiceAccount.Username(),
		HubID:         a.identity.HubID(),
		Namespace:     a.opts.Config.Namespace,
		Namespaces:    cfg.Namespaces,
		EvictionGrace: cfg.EvictionGrace.Duration,
		Cluster:       a.opts.Config.Cluster,
		AgentID:       cfg.AgentID,
		Feedback:      feedback.Options{RawJSON: cfg.RawFeedbackJSONString, MaxRawLength: cfg.MaxJSONRawLength},

		ExecutorCaches: cfg.ExecutorValidatingCaches,

		Logger:     a.opts.Logger.WithName("work"),
		Registerer: registerer,
	})
}

// termMetrics are metrics that end with an engine.
type termMetrics struct {
	prometheus.Registerer
	collectors []prometheus.Collector
}

// Register registers a collector for as long as the term lasts.
func (m *termMetrics) Register(c prometheus.Collector) error {
	if err := m.Registerer.Register(c); err != nil {
		return err
	}
	m.collectors = append(m.collectors, c)
	return nil
}

func (m *termMetrics) clear() {
	for _, c := range m.collectors {
		m.Unregister(c)
	}
}
