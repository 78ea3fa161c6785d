// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/action"
	"github.com/spokelet/spokelet/agent/helm"
	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/agent/pod"
	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/agent/view"
	"github.com/spokelet/spokelet/agent/work"
	"github.com/spokelet/spokelet/agent/work/feedback"
	"github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// leaseName is the Lease of the process that executes works and runs pods.
const leaseName = "spokelet-agent"

var errHandedOver = fmt.Errorf("%w: this process executes nothing any more", resource.ErrSuperseded)

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

// addEngines makes this process a candidate for what one process alone may do: executing
// works and actions, answering views and running pods. With nothing of that enabled views
// and actions are refused, which somebody has to say.
func (a *agent) addEngines(ctx context.Context) error {
	if *a.opts.Config.Work.Enabled {
		if err := a.installAnchors(ctx); err != nil {
			return err
		}
	}
	var err error
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

// installAnchors makes what records applied works.
func (a *agent) installAnchors(ctx context.Context) error {
	dyn, err := dynamic.NewForConfig(a.opts.Client)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	return crds.Install(ctx, dyn, crds.Agent())
}

// execute runs the engines while this process holds the lease, and joins them to the
// hub. An engine serves one term.
func (a *agent) execute(ctx context.Context) error {
	metrics := &termMetrics{Registerer: a.registry}
	defer metrics.clear()
	t := &term{sources: slices.Clone(a.sources)}
	if err := a.addWorks(t, metrics); err != nil {
		return err
	}
	leave, err := a.addPods(t, metrics)
	if err != nil {
		return err
	}
	defer leave()
	if err := a.addQuestions(t); err != nil {
		return err
	}
	endEvents, err := a.addShared(ctx, t)
	if err != nil {
		return err
	}
	defer endEvents()
	sync, err := resource.NewAgent(t.sources, t.mirrors)
	if err != nil {
		return err
	}
	return serveTerm(ctx, a.tunnel, &a.sync, sync, t.run)
}

// term is the engines of one term, and what joins them to the hub.
type term struct {
	sources []*resource.Source
	mirrors []*resource.Mirror
	engines []func(context.Context) error
}

// run runs all until ctx ends or one fails.
func (t *term) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, engine := range t.engines {
		group.Go(func() error { return engine(ctx) })
	}
	return group.Wait()
}

func (a *agent) addWorks(t *term, registerer prometheus.Registerer) error {
	if !*a.opts.Config.Work.Enabled {
		return nil
	}
	engine, err := a.newWorks(registerer)
	if err != nil {
		return err
	}
	t.sources = append(t.sources, engine.Source())
	t.mirrors = append(t.mirrors, engine.Mirror())
	t.engines = append(t.engines, engine.Run)
	return nil
}

// addPods makes the pods of the term those that the kube door finds, until leave is
// called.
func (a *agent) addPods(t *term, registerer prometheus.Registerer) (leave func(), err error) {
	if !*a.opts.Config.Pods.Enabled {
		return func() {}, nil
	}
	engine, err := a.newPods(registerer)
	if err != nil {
		return nil, err
	}
	t.sources = append(t.sources, engine.Sources()...)
	t.mirrors = append(t.mirrors, engine.Mirrors()...)
	t.engines = append(t.engines, engine.Run)
	return a.pods.enter(engine), nil
}

// addQuestions answers views and does actions, of those whom the kube door lets in.
func (a *agent) addQuestions(t *term) error {
	meta, err := metadata.NewForConfig(a.opts.Client)
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	entries, err := kubernetes.NewForConfig(a.guarded())
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	resources := mapping.New(a.kube.Discovery())
	views, err := view.New(view.Config{
		Door: a.kubeDoor, Resources: resources, Metadata: meta,
		Reviews: a.kube.AuthorizationV1().SubjectAccessReviews(),
		Logger:  a.opts.Logger.WithName("view"),
	})
	if err != nil {
		return err
	}
	releases, err := helm.New(helm.Config{
		Binary: a.opts.Config.Helm.Binary, Door: a.kubeDoor, Guard: a.lease.Guard,
		Allowed: a.opts.Config.Helm.Charts, Memory: a.opts.Config.Helm.Memory.Value(),
		Logger: a.opts.Logger.WithName("helm"),
	})
	if err != nil {
		return err
	}
	actions, err := action.New(action.Config{
		Door: a.kubeDoor, Resources: resources, Guard: a.lease.Guard, Releases: releases,
		Entries: entries.CoreV1().ConfigMaps(a.opts.Config.Namespace),
		Logger:  a.opts.Logger.WithName("action"),
	})
	if err != nil {
		return err
	}
	t.sources = append(t.sources, views.Source(), actions.Source())
	t.mirrors = append(t.mirrors, views.Mirror(), actions.Mirror())
	t.engines = append(t.engines, views.Run, actions.Run)
	return nil
}

// finder knows where the pods of the hub are.
type finder interface {
	Locate(wire.PodKey) (namespace string, uid types.UID, ok bool)
}

// locator finds pods while this process runs them.
type locator struct{ finder atomic.Pointer[finder] }

func (l *locator) enter(f finder) (leave func()) {
	l.finder.Store(&f)
	return func() { l.finder.Store(nil) }
}

// Locate tells where in the spoke a pod of the hub is, and the UID of the hub's; false
// when it is not there, or another process runs the pods.
func (l *locator) Locate(key wire.PodKey) (namespace string, uid types.UID, ok bool) {
	f := l.finder.Load()
	if f == nil {
		return "", "", false
	}
	return (*f).Locate(key)
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

// guarded reaches the spoke's API server for as long as the lease is held.
func (a *agent) guarded() *rest.Config {
	client := rest.CopyConfig(a.opts.Client)
	client.Wrap(a.lease.Guard)
	return client
}

func (a *agent) newWorks(registerer prometheus.Registerer) (*work.Engine, error) {
	cfg := a.opts.Config.Work
	return work.New(work.Config{
		REST:          a.guarded(),
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

func (a *agent) newPods(registerer prometheus.Registerer) (*pod.Engine, error) {
	cfg := a.opts.Config.Pods
	apiHost, apiPort := cfg.HubServer()
	config := pod.Config{
		REST:      a.guarded(),
		Account:   a.opts.Config.PodAccount(),
		HubID:     a.identity.HubID(),
		Namespace: a.opts.Config.Namespace,
		// A pod there could run as the account of the works.
		Reserved:   []string{a.opts.Config.Work.ServiceAccount.Namespace},
		Prefix:     cfg.NamespacePrefix,
		Namespaces: cfg.Namespaces,
		Tokens:     translate.Tokens(cfg.Tokens),
		APIHost:    apiHost,
		APIPort:    apiPort,
		HostAccess: cfg.HostAccess,

		Annotations: cfg.Annotations,

		Logger:     a.opts.Logger.WithName("pod"),
		Registerer: registerer,
	}
	if a.split != nil {
		config.SplitLabel, config.Groups = a.opts.Config.Node.SplitLabel, a.split
	}
	return pod.New(config)
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
