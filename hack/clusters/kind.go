// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/hack/clusters/internal/engine"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// kind is the provider of clusters in Docker containers. Their nodes share a
// Docker network, so the filter between hub and spoke sits in the spoke's node.
type kind struct {
	*resources
	tools  *toolchain.Toolchain
	engine *engine.Engine // the set's own; nil where the machine's is used
}

func newKind(set *Set, tools *toolchain.Toolchain) *kind {
	k := &kind{resources: &resources{set: set}, tools: tools}
	if !set.state.OwnEngine {
		return k
	}
	plan := network.Plan{Slot: set.state.Slot, Namespace: "spokelet-" + set.state.Name + "-engine"}
	k.plans = []network.Plan{plan}
	k.engine = &engine.Engine{
		Dir: filepath.Join(k.dir(), "engine"), RunDir: k.runDir(), Mark: k.dir(), Cgroup: k.cgroup(), Plan: plan,
		ReadyTimeout: set.config.ReadyTimeout,
	}
	return k
}

func (k *kind) name(c *Cluster) string      { return k.set.state.Name + "-" + c.Name }
func (k *kind) container(c *Cluster) string { return k.name(c) + "-control-plane" }

func (k *kind) create(ctx context.Context) error {
	if err := k.startEngine(ctx); err != nil {
		return err
	}
	node, err := k.nodeImage(ctx)
	if err != nil {
		return k.failure(err)
	}
	busybox, err := k.busybox(ctx)
	if err != nil {
		return k.failure(err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, c := range k.set.clusters {
		group.Go(func() error { return k.createOne(groupCtx, c, node, busybox) })
	}
	if err := group.Wait(); err != nil {
		return k.failure(err)
	}
	if err := k.describe(ctx, k.set.Hub()); err != nil {
		return err
	}
	for _, spoke := range k.set.Spokes() {
		if err := k.blockIncoming(ctx, spoke); err != nil {
			return fmt.Errorf("cluster %s: %w", spoke.Name, err)
		}
	}
	return nil
}

// failure says of an error whether it is the engine's.
func (k *kind) failure(err error) error {
	if k.engine == nil {
		return err
	}
	return k.engine.Failure(err)
}

// createOne makes a cluster, of the node image of that name or, where it is empty, of
// kind's own.
func (k *kind) createOne(ctx context.Context, c *Cluster, node, busybox string) error {
	if err := k.configure(c, node); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	args := []string{
		"create", "cluster", "--name=" + k.name(c), "--kubeconfig=" + c.Kubeconfig,
		"--config=" + filepath.Join(c.dir, "kind.yaml"), "--wait=" + k.set.config.ReadyTimeout.String(), "--retain",
	}
	if node != "" {
		args = append(args, "--image="+node)
	}
	if err := k.kind(ctx, args...); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	patience := strconv.Itoa(int(k.set.config.ReadyTimeout.Seconds()))
	if _, err := c.Exec(ctx, "timeout", patience, "sh", "-euc", awaitNode); err != nil {
		return err
	}
	if err := c.LoadImage(ctx, busybox); err != nil {
		return err
	}
	k.set.config.Log.Info("cluster is ready", "cluster", c.Name)
	return nil
}

// awaitNode runs on a new node. The audit log is readable by root alone, which the caller
// need not be; and nobody approves a kubelet's serving certificate by himself. The wait of
// kind itself ends without an error. That for kube-proxy has two tools of which one knows
// it; its rules come before those that are there, once, and ours have to come before them.
const awaitNode = `
chmod 0644 ` + auditMount + `/audit.log
export KUBECONFIG=/etc/kubernetes/admin.conf
echo "waiting for the kubelet to ask for a certificate" >&2
requests='jsonpath={.items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")].metadata.name}'
until names=$(kubectl get certificatesigningrequests --output="$requests") && [ -n "$names" ]; do sleep 0.2; done
kubectl certificate approve $names
echo "waiting for the node to be ready" >&2
kubectl wait node --all --for=condition=Ready --timeout=1h
echo "waiting for the rules of kube-proxy" >&2
rules() { for tool in iptables-nft iptables-legacy; do "$tool" --wait --table=nat --list-rules KUBE-SERVICES || true; done 2>/dev/null; }
until rules | grep -q default/kubernetes; do sleep 0.2; done
`

// Chains in the spoke's node; incomingChain stays, faultChain is replaced by faults.
const (
	incomingChain = "SPOKELET-INCOMING"
	faultChain    = "SPOKELET-FAULT"
)

// blockIncoming keeps the other clusters of the set from opening connections to the
// spoke: to its node or, forwarded, to its pods.
func (k *kind) blockIncoming(ctx context.Context, spoke *Cluster) error {
	var text strings.Builder
	fmt.Fprintf(&text, "*filter\n:%s - [0:0]\n:%s - [0:0]\n", incomingChain, faultChain)
	fmt.Fprintf(&text, "-A %s -j %s\n", incomingChain, faultChain)
	for _, other := range k.set.clusters {
		if other == spoke {
			continue
		}
		if err := k.describe(ctx, other); err != nil {
			return err
		}
		fmt.Fprintf(&text, "-A %s -s %s -m conntrack --ctstate NEW -j REJECT\n", incomingChain, other.Address)
	}
	for _, hook := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		fmt.Fprintf(&text, "-I %s -j %s\n", hook, incomingChain)
	}
	text.WriteString("COMMIT\n")
	return k.restore(ctx, spoke, text.String())
}

func (k *kind) fault(ctx context.Context, spoke *Cluster, mode Mode) error {
	hub := k.set.Hub().Address
	text, err := network.Faults(faultChain, mode, "-d "+hub, "-s "+hub)
	if err != nil {
		return err
	}
	return k.restore(ctx, spoke, text)
}

func (k *kind) restore(ctx context.Context, c *Cluster, rules string) error {
	cmd := k.command(ctx, c, "iptables-restore", []string{"-w", "--noflush"})
	cmd.Stdin = strings.NewReader(rules)
	return process.Run(cmd)
}

// destroy removes the clusters. With an engine of its own, the set is no more than what
// is on the machine: no engine has to answer for that.
func (k *kind) destroy(ctx context.Context) error {
	if k.engine != nil {
		if err := k.clear(ctx, k.engine.Strays); err != nil {
			return err
		}
		engine.RemoveEmpty()
		return nil
	}
	// What an Up that was killed has started may go on.
	if err := process.KillAll(ctx, func() []int { return process.Marked(k.dir()) }); err != nil {
		return err
	}
	var failed error
	for _, c := range k.set.clusters {
		failed = errors.Join(failed, k.destroyOne(ctx, c))
	}
	return failed
}

// destroyOne removes a cluster, unless it is one of another set that has this one's name:
// they share the engine.
func (k *kind) destroyOne(ctx context.Context, c *Cluster) error {
	const format = `{{range .Mounts}}{{if eq .Destination "` + auditMount + `"}}{{.Source}}{{end}}{{end}}`
	found, err := k.ask(ctx, "ps", "--all", "--quiet", "--filter=name=^"+k.container(c)+"$")
	if err != nil {
		return fmt.Errorf("the Docker engine that the cluster is on has to remove it: %w", err)
	}
	if found == "" {
		return nil
	}
	mounted, err := k.ask(ctx, "inspect", "--format", format, k.container(c))
	if err != nil {
		return err
	}
	if mounted != filepath.Join(c.dir, "audit") {
		k.set.config.Log.Info("leaving a container of another set", "container", k.container(c))
		return nil
	}
	return k.kind(ctx, "delete", "cluster", "--name="+k.name(c), "--kubeconfig="+c.Kubeconfig)
}

func (k *kind) healthy(ctx context.Context) error {
	kubectl, err := k.tools.Program(ctx, "kubectl")
	if err != nil {
		return err
	}
	for _, c := range k.set.clusters {
		cmd := exec.CommandContext(ctx, kubectl, "--kubeconfig="+c.Kubeconfig, "get", "--raw=/readyz") //nolint:gosec // ours
		cmd.Env = process.Environment(k.dir(), "HOME="+c.dir)
		if err := process.Run(cmd); err != nil {
			return k.failure(fmt.Errorf("cluster %s: %w", c.Name, err))
		}
	}
	return nil
}

var errAddress = errors.New("container has no address")

func (k *kind) describe(ctx context.Context, c *Cluster) error {
	c.Node, c.AuditLog = k.container(c), filepath.Join(c.dir, "audit", "audit.log")
	const format = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.Gateway}} {{end}}"
	out, err := k.ask(ctx, "inspect", "--format", format, k.container(c))
	if err != nil {
		return k.failure(err)
	}
	fields := strings.Fields(out)
	if len(fields) < 2 {
		return fmt.Errorf("%s: %w", k.container(c), errAddress)
	}
	for _, field := range fields[:2] {
		if _, err := netip.ParseAddr(field); err != nil {
			return fmt.Errorf("%s: %w", k.container(c), err)
		}
	}
	c.Address, c.Gateway = fields[0], fields[1]
	if k.engine != nil { // its bridge is not this machine's
		c.Gateway = k.engine.Plan.Gateway().String()
	}
	return nil
}

func (k *kind) load(ctx context.Context, c *Cluster, tarball string) error {
	return k.kind(ctx, "load", "image-archive", tarball, "--name="+k.name(c))
}

func (k *kind) command(ctx context.Context, c *Cluster, name string, args []string) *exec.Cmd {
	return k.docker(ctx, slices.Concat([]string{"exec", "--interactive", k.container(c), name}, args)...)
}

// setAPIServer moves the API server's manifest out of the kubelet's sight or
// back, and waits for what the kubelet makes of it.
func (k *kind) setAPIServer(ctx context.Context, c *Cluster, running bool) error {
	ctx, cancel := context.WithTimeout(ctx, k.set.config.ReadyTimeout)
	defer cancel()
	const (
		manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
		aside    = "/etc/kubernetes/kube-apiserver.yaml"
		ready    = "kubectl --kubeconfig=/etc/kubernetes/admin.conf get --raw=/readyz >/dev/null 2>&1"
	)
	script := "[ -e " + aside + " ] || mv " + manifest + " " + aside +
		"; " + fmt.Sprintf("sleep %.0f", apiServerGrace.Seconds()) + "; while pkill -KILL -x kube-apiserver; do sleep 0.2; done"
	if running {
		script = "[ -e " + manifest + " ] || mv " + aside + " " + manifest + "; until " + ready + "; do sleep 0.2; done"
	}
	_, err := c.Exec(ctx, "sh", "-c", script)
	return err
}
