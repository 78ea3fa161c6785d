// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"io"
	"regexp"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

const (
	spokeName = "spoke1"
	user      = "bench"
	group     = "bench"
)

// site is one cluster with its clients.
type site struct {
	cluster *clusters.Cluster
	rest    *rest.Config
	kube    kubernetes.Interface
	dyn     dynamic.Interface
	ctl     env.Command
}

// suite is the installation that is measured.
type suite struct {
	env   *env.Env
	hub   *site
	spoke *site
	out   io.Writer
}

// step is a part of the suite. A step may need what those before it left.
type step struct {
	name string
	run  func(context.Context) ([]figure.Figure, error)
}

func (s *suite) steps() []step {
	return []step{
		{"idle", s.idle},
		{"views", s.views},
		{"works", of(s.works, manifestWork())},
		{"bulk", of(s.bulk, manifestWork())},
		{"memory of 1000 works", s.memory},
		{"rest", s.rest},
		{"node exec", s.exec},
		{"node logs", s.logs},
		{"node latency", s.latency},
		{"node 600 pods", s.sixHundred},
		{"mcm", s.mcm},
		{"helm", s.helm},
		{"shared", s.shared},
		{"node streams", s.streams}, // begins with both processes new
		{"clusters", s.clusters},
		{"hostile", s.hostile},
		{"multicluster works", of(s.works, multicluster())},
		{"multicluster bulk", of(s.bulk, multicluster())},
		{"multicluster end", of(s.clear, multicluster())},
		{"unrelated objects", s.unrelated},
		{"10000 works", s.thousands},
	}
}

// Run brings up a hub and a spoke, measures, and removes both. It runs the steps
// whose names match.
func Run(ctx context.Context, out io.Writer, only *regexp.Regexp) ([]figure.Figure, error) {
	config := clusters.Config{Name: "bench", Spokes: 1, Log: env.Progress(out)}
	set, err := clusters.Up(ctx, config)
	if err != nil {
		return nil, err
	}
	// Also after an interrupt.
	defer func() { _ = set.Down(context.WithoutCancel(ctx)) }()
	s, err := newSuite(ctx, set, out)
	if err != nil {
		return nil, err
	}
	var figures []figure.Figure
	for _, step := range s.steps() {
		if !only.MatchString(step.name) {
			continue
		}
		_, _ = fmt.Fprintf(out, "bench: %s\n", step.name)
		got, err := step.run(ctx)
		figures = append(figures, got...)
		if err != nil {
			return figures, fmt.Errorf("bench %s: %w", step.name, err)
		}
	}
	return figures, nil
}

// of measures one dialect.
func of(measure func(context.Context, dialect) ([]figure.Figure, error), d dialect) func(context.Context) ([]figure.Figure, error) {
	return func(ctx context.Context) ([]figure.Figure, error) { return measure(ctx, d) }
}

func newSuite(ctx context.Context, set *clusters.Set, out io.Writer) (*suite, error) {
	e, err := env.New(ctx, set, env.Build{Version: "bench"}, out)
	if err != nil {
		return nil, err
	}
	s := &suite{env: e, out: out}
	if s.hub, err = newSite(e, set.Hub()); err != nil {
		return nil, err
	}
	if s.spoke, err = newSite(e, set.Spokes()[0]); err != nil {
		return nil, err
	}
	if err := e.InstallHub(ctx); err != nil {
		return nil, err
	}
	if err := e.Join(ctx, s.spoke.cluster, "--set", "kube.groups={"+group+"}", "--set", "helm.charts={"+env.ChartsURL(s.spoke.cluster)+"}"); err != nil {
		return nil, err
	}
	return s, s.grant(ctx)
}

func newSite(e *env.Env, c *clusters.Cluster) (*site, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	cfg.QPS = -1
	s := &site{cluster: c, rest: cfg, ctl: e.Kubectl(c)}
	if s.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if s.dyn, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return s, nil
}

// grant gives the measuring user its rights, on both sides.
func (s *suite) grant(ctx context.Context) error {
	for _, command := range []struct {
		on   *site
		args []string
	}{
		{s.hub, []string{"wait", "--for=condition=Ready", "node/" + spokeName, "--timeout=180s"}},
		{s.hub, []string{"create", "clusterrole", "bench", "--verb=*", "--resource=viewworks.live.spokelet.io,clusters.live.spokelet.io,clusters.live.spokelet.io/proxy"}},
		{s.hub, []string{"create", "clusterrolebinding", "bench", "--clusterrole=bench", "--group=" + group}},
		{s.spoke, []string{"create", "clusterrolebinding", "bench", "--clusterrole=view", "--group=hub:" + group}},
		{s.spoke, []string{"create", "namespace", "bench"}},
		{s.hub, []string{"create", "clusterrole", mcmLabel, "--verb=*", "--resource=works.mcm.ibm.com"}},
		{s.hub, []string{"create", "clusterrolebinding", mcmLabel, "--clusterrole=" + mcmLabel, "--group=" + group}},
		{s.spoke, []string{"create", "rolebinding", mcmLabel, "-n", "bench", "--clusterrole=edit", "--group=hub:" + group}},
		{s.spoke, []string{"create", "configmap", "small", "-n", "bench", "--from-literal=k=v"}},
	} {
		if _, err := command.on.ctl.Run(ctx, command.args...); err != nil {
			return err
		}
	}
	return nil
}
