// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/join"
	"github.com/spokelet/spokelet/agent/kubedoor"
	"github.com/spokelet/spokelet/agent/lease"
	"github.com/spokelet/spokelet/agent/node"
	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// kubeletAccount is the name that the chart gives the account as which the
// kubelets are asked, in the agent's namespace.
const kubeletAccount = "spokelet-agent-kubelets"

// Options is what an agent runs with.
type Options struct {
	// Config is valid and defaulted.
	Config *v1alpha1.AgentConfiguration
	// Client reaches the spoke's API server, without a rate limit of its own.
	Client *rest.Config
	// Logger gets what happens at the edges.
	Logger logr.Logger
	// Version is the version of the build.
	Version string
	// Process names this process among those of its cluster that live: the pod.
	// The process that follows it under the same name has its place at once.
	Process string
}

// agent is the parts of a running agent.
type agent struct {
	opts     Options
	kube     kubernetes.Interface
	registry *prometheus.Registry
	health   *health
	identity *join.Identity
	uid      string
	tunnel   *tunnel.Agent

	// split tells the groups of nodes; nil when the cluster is one node.
	split *node.Watcher

	lease *lease.Holder
	sync  syncDoor
	pods  locator

	sources []*resource.Source
	doors   map[string]http.Handler
	// kubeDoor is one of them.
	kubeDoor *kubedoor.Door
	parts    []func(context.Context) error
}

// Run runs an agent until ctx ends or a part fails. Without the hub it waits
// for its first certificate, and goes on with what it has once it has one.
func Run(ctx context.Context, opts Options) error {
	a, err := newAgent(opts)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.health.serve(ctx) })
	group.Go(func() error { return a.run(ctx, group) })
	return group.Wait()
}

func newAgent(opts Options) (*agent, error) {
	kube, err := kubernetes.NewForConfig(opts.Client)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &agent{
		opts:     opts,
		kube:     kube,
		registry: registry,
		health:   newHealth(opts.Config.HealthListen, registry),
		doors:    map[string]http.Handler{},
	}, nil
}

// run makes the parts in the order in which they need each other, and starts
// them in the group.
func (a *agent) run(ctx context.Context, group *errgroup.Group) error {
	for _, step := range []func(context.Context) error{
		a.join, a.addEngines, a.addNode, a.addKube, a.addTunnel,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // a stop that was asked for is no failure
			}
			return err
		}
	}
	for _, part := range a.parts {
		group.Go(func() error { return part(ctx) })
	}
	return nil
}

func (a *agent) addNode(context.Context) error {
	summary := resource.NewSource(wire.NodeSummaryKind)
	config := node.WatcherConfig{
		Client:    a.kube,
		Version:   a.kube.Discovery(),
		Publisher: node.PublisherFunc(func(body []byte) { a.publish(summary, body) }),

		HubID:           a.identity.HubID(),
		NamespacePrefix: a.opts.Config.Pods.NamespacePrefix,

		Logger: a.opts.Logger.WithName("node"),
	}
	a.addGroups(&config)
	watcher, err := node.NewWatcher(config)
	if err != nil {
		return err
	}
	if config.SplitLabel != "" {
		a.split = watcher
	}
	kubelets, err := node.NewKubelets(node.KubeletConfig{
		REST:        a.opts.Client,
		Tokens:      a.kube.CoreV1().ServiceAccounts(a.opts.Config.Namespace),
		Account:     kubeletAccount,
		InsecureTLS: a.opts.Config.Node.KubeletInsecureTLS,
	})
	if err != nil {
		return err
	}
	scraper, err := a.newScraper(watcher, node.ScraperConfig{
		Name:      a.opts.Config.Cluster,
		Nodes:     watcher,
		Pods:      watcher,
		Transport: kubelets,
		Logger:    a.opts.Logger.WithName("node"),
	})
	if err != nil {
		return err
	}
	a.sources = append(a.sources, summary)
	a.doors[tunnel.DoorNode] = scraper
	a.parts = append(a.parts, watcher.Run)
	return nil
}

// publish hands a summary to Sync. There is one, so what is published once is
// all there is.
func (a *agent) publish(to *resource.Source, body []byte) {
	if err := to.Put(resource.Resource{Key: wire.NodeSummaryKey, Body: body}); err != nil {
		a.opts.Logger.Error(err, "node summary cannot be published")
		return
	}
	to.Complete()
}

func (a *agent) addKube(context.Context) error {
	cfg := a.opts.Config.Kube
	kube := kubedoor.Config{
		Rest:       a.opts.Client,
		Enabled:    *cfg.Enabled,
		UserPrefix: cfg.UserPrefix,
		Namespaces: cfg.Namespaces,
		Groups:     cfg.Groups,
		Logger:     a.opts.Logger.WithName("kube"),
	}
	if *a.opts.Config.Pods.Enabled {
		kube.Pods, kube.NodeAccount = &a.pods, a.opts.Config.PodAccount()
	}
	var err error
	if a.kubeDoor, err = kubedoor.New(kube); err != nil {
		return err
	}
	a.doors[tunnel.DoorKube] = a.kubeDoor
	return nil
}

func (a *agent) addTunnel(context.Context) error {
	a.doors[tunnel.DoorSync] = &a.sync
	client, err := tunnel.NewAgent(tunnel.AgentConfig{
		Address:       a.opts.Config.Hub.Address,
		Credentials:   a.identity,
		Doors:         a.doors,
		Refused:       a.identity.Refused,
		Roles:         true,
		KubeSystemUID: a.uid,
		Version:       a.opts.Version,
		Logger:        a.opts.Logger.WithName("tunnel"),
		Registerer:    a.registry,
	})
	if err != nil {
		return err
	}
	a.tunnel = client
	a.health.follow(client)
	a.parts = append(a.parts, client.Run)
	return nil
}
