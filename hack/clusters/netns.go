// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// netns is the provider of real clusters in network namespaces.
type netns struct {
	*resources
	tools *toolchain.Toolchain
}

func newNetns(set *Set, tools *toolchain.Toolchain) *netns {
	n := &netns{&resources{set: set}, tools}
	for _, c := range set.clusters {
		n.plans = append(n.plans, n.plan(c))
	}
	return n
}

func (n *netns) plan(c *Cluster) network.Plan {
	return network.Plan{
		Slot: n.set.state.Slot, Index: c.index,
		Namespace: "spokelet-" + n.set.state.Name + "-" + c.Name,
	}
}

func (n *netns) plane(c *Cluster) *plane {
	plan := n.plan(c)
	return &plane{
		cluster: c, tools: n.tools, namespace: plan.Path(), host: plan.Host(), services: plan.Services(), nodes: true,
		// The usual ones: each cluster has all ports to itself.
		ports: ports{API: 6443, Etcd: 2379, EtcdPeer: 2380, Controllers: 10257, Scheduler: 10259},
	}
}

func (n *netns) node(c *Cluster) *node {
	return &node{
		plane: n.plane(c), plan: n.plan(c),
		runDir: filepath.Join(n.runDir(), c.Name), cgroup: n.cgroup() + "/" + c.Name,
	}
}

// create makes the network, then all clusters at once.
func (n *netns) create(ctx context.Context) error {
	if err := host.Require(ctx, n.set.config.Log); err != nil {
		return err
	}
	for _, program := range []string{"kube-apiserver", "etcd", "pause"} { // before anything waits for it
		if _, err := n.tools.Program(ctx, program); err != nil {
			return err
		}
	}
	if err := n.tune(ctx); err != nil {
		return err
	}
	if err := network.Create(ctx, n.plans[0], n.plans[1:]); err != nil {
		return err
	}
	images, err := writeImages(ctx, n.tools, n.dir())
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range n.set.clusters {
		if err := n.describe(ctx, c); err != nil {
			return err
		}
		group.Go(func() error { return n.bring(ctx, c, images) })
	}
	return group.Wait()
}

// bring makes one cluster.
func (n *netns) bring(ctx context.Context, c *Cluster, images []string) error {
	start := time.Now()
	node := n.node(c)
	if err := node.prepare(); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if err := node.boot(ctx); err != nil {
		return err
	}
	n.set.config.Log.Info("API server is ready", "cluster", c.Name, "elapsed", time.Since(start).Round(time.Millisecond))
	if err := node.join(ctx, images); err != nil {
		return err
	}
	n.set.config.Log.Info("node runs pods", "cluster", c.Name, "elapsed", time.Since(start).Round(time.Millisecond))
	return nil
}

func (n *netns) describe(_ context.Context, c *Cluster) error {
	c.Node = n.plane(c).nodeName()
	c.Address = n.plan(c).Host().String()
	c.Gateway = n.plan(c).Gateway().String()
	c.AuditLog = filepath.Join(c.dir, "audit", "audit.log")
	return nil
}

func (n *netns) healthy(ctx context.Context) error {
	for _, c := range n.set.clusters {
		if err := n.plane(c).healthy(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *netns) fault(ctx context.Context, spoke *Cluster, mode Mode) error {
	return network.Apply(ctx, n.plan(n.set.Hub()), n.plan(spoke), mode)
}

func (n *netns) setAPIServer(ctx context.Context, c *Cluster, running bool) error {
	return n.plane(c).setAPIServer(ctx, running)
}

func (n *netns) load(ctx context.Context, c *Cluster, tarball string) error {
	return n.node(c).importImage(ctx, tarball)
}

func (n *netns) command(ctx context.Context, c *Cluster, name string, args []string) *exec.Cmd {
	// nsenter, not ip netns exec: the latter hides the control groups.
	enter := append([]string{"--net=" + n.plan(c).Path(), "--", name}, args...)
	return exec.CommandContext(ctx, "nsenter", enter...) //nolint:gosec // the caller's program is the purpose
}

func (n *netns) destroy(ctx context.Context) error {
	return n.clear(ctx, func() []string {
		found := n.strays()
		for _, c := range n.set.clusters {
			found = append(found, process.ShimSockets(filepath.Join(n.runDir(), c.Name, "containerd"))...)
		}
		return found
	})
}

// strays lists what the kubelet and CNI leave in directories whose place is
// fixed: links to our pods' logs, and the cached networks of our pods.
func (n *netns) strays() []string {
	var found []string
	for _, link := range glob("/var/log/containers/*.log") {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, n.dir()+"/") {
			found = append(found, link)
		}
	}
	// A pod's loopback is cached under a name that all sets share; its id is its own.
	for _, sandbox := range glob(filepath.Join(n.dir(), "*", "containerd", "*", "sandboxes", "*")) {
		found = append(found, glob("/var/lib/cni/results/*-"+filepath.Base(sandbox)+"-*")...)
	}
	return found
}

// glob lists the paths that match a pattern of ours, which is well formed.
func glob(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	return paths
}
