// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/hack/clusters/internal/cgroup"
	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// netns is the provider of real clusters in network namespaces.
type netns struct {
	set   *Set
	tools *toolchain.Toolchain
}

// destroyTimeout bounds what waits for the kernel while a set is removed.
const destroyTimeout = 30 * time.Second

func (n *netns) plan(c *Cluster) network.Plan {
	return network.Plan{
		Slot: n.set.state.Slot, Index: c.index,
		Namespace: "spokelet-" + n.set.state.Name + "-" + c.Name,
	}
}

func (n *netns) plans() []network.Plan {
	var plans []network.Plan
	for _, c := range n.set.clusters {
		plans = append(plans, n.plan(c))
	}
	return plans
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

// runDir holds sockets, whose paths must be short, and containerd's volatile state.
func (n *netns) runDir() string { return filepath.Join(machineDir, n.set.state.Name) }
func (n *netns) cgroup() string { return "/spokelet/" + n.set.state.Name }
func (n *netns) dir() string    { return n.set.state.dir(n.set.config.StateDir) }

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
	plans := n.plans()
	if err := network.Create(ctx, plans[0], plans[1:]); err != nil {
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

// Machine-wide places. They are in /run, so that a reboot forgets the saved
// settings together with the settings themselves. No set's name has a dot.
const (
	machineDir    = "/run/spokelet"
	machineLock   = machineDir + "/.lock"
	savedSettings = machineDir + "/.kernel.json"
)

// tune changes the kernel's settings. The set's directory in machineDir shows
// other sets that they are in use, and is made under the same lock.
func (n *netns) tune(ctx context.Context) error {
	machine, err := lock.Acquire(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer machine.Release()
	if err := os.MkdirAll(n.runDir(), 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return err
	}
	return host.Tune(savedSettings)
}

// untune removes the set's directory and, after the last set's, puts the
// kernel's settings back.
func (n *netns) untune(ctx context.Context) error {
	machine, err := lock.Acquire(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer machine.Release()
	if err := os.RemoveAll(n.runDir()); err != nil {
		return err
	}
	entries, err := os.ReadDir(machineDir)
	if err != nil || slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
		return err
	}
	if err := host.Restore(savedSettings); err != nil {
		return err
	}
	if err := machine.Remove(); err != nil {
		return err
	}
	// Another set may just be making it anew; it needs it then.
	_ = os.Remove(machineDir)
	return nil
}

// destroy removes all that create makes, in whatever state it is: processes
// first (what runs could make more), then what they used.
func (n *netns) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := process.KillAll(ctx, n.processes); err != nil {
		return err
	}
	shims := n.shimSockets()
	steps := []error{
		host.Unmount(n.runDir()),
		host.Unmount(n.dir()),
		network.Remove(ctx, n.plans()),
		cgroup.Remove(ctx, n.cgroup()),
	}
	cgroup.RemoveEmpty("/spokelet")
	for _, path := range slices.Concat(shims, n.strays()) {
		steps = append(steps, os.RemoveAll(path))
	}
	if err := errors.Join(steps...); err != nil {
		return err
	}
	return n.untune(ctx)
}

// processes lists everything of the set: what runs in its namespaces, in its
// control groups (pods, with namespaces of their own), or bears its mark.
func (n *netns) processes() []int {
	pids := process.Marked(n.dir())
	for _, plan := range n.plans() {
		pids = append(pids, process.InNamespace(plan.Path())...)
	}
	if inGroups, err := cgroup.Processes(n.cgroup()); err == nil {
		pids = append(pids, inGroups...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// shimSockets lists the sockets of containerd's shims, which lie in a directory
// that all instances of containerd share. Each pod's bundle names its own.
func (n *netns) shimSockets() []string {
	var sockets []string
	bundles := filepath.Join(n.runDir(), "*", "containerd", "io.containerd.runtime.v2.task", "*", "*", "address")
	for _, path := range glob(bundles) {
		content, err := os.ReadFile(path) //nolint:gosec // below our own directory
		socket, isUnix := strings.CutPrefix(strings.TrimSpace(string(content)), "unix://")
		if err == nil && isUnix && strings.HasPrefix(socket, "/run/containerd/s/") {
			sockets = append(sockets, socket)
		}
	}
	return sockets
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
