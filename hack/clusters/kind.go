// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// kind is the provider of clusters in Docker containers. Their nodes share a
// Docker network, so the filter between hub and spoke sits in the spoke's node.
type kind struct {
	set   *Set
	tools *toolchain.Toolchain
}

func (k *kind) name(c *Cluster) string      { return k.set.state.Name + "-" + c.Name }
func (k *kind) container(c *Cluster) string { return k.name(c) + "-control-plane" }

// kindConfig turns on the audit log, in a directory of this machine.
const kindConfig = `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
- role: control-plane
  extraMounts:
  - {hostPath: "%[1]s/config", containerPath: /etc/kubernetes/audit, readOnly: true}
  - {hostPath: "%[1]s/audit", containerPath: /var/log/kubernetes}
  kubeadmConfigPatches:
  - |
    kind: ClusterConfiguration
    apiServer:
      extraArgs:
      - {name: audit-policy-file, value: /etc/kubernetes/audit/audit.yaml}
      - {name: audit-log-path, value: /var/log/kubernetes/audit.log}
      - {name: enable-aggregator-routing, value: "true"}
      extraVolumes:
      - {name: audit-policy, hostPath: /etc/kubernetes/audit, mountPath: /etc/kubernetes/audit, readOnly: true}
      - {name: audit-log, hostPath: /var/log/kubernetes, mountPath: /var/log/kubernetes}
`

func (k *kind) create(ctx context.Context) error {
	for _, c := range k.set.clusters {
		if err := k.createOne(ctx, c); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		k.set.config.Log.Info("cluster is ready", "cluster", c.Name)
	}
	if err := k.describe(ctx, k.set.Hub()); err != nil {
		return err
	}
	for _, spoke := range k.set.Spokes() {
		if err := k.shield(ctx, spoke); err != nil {
			return fmt.Errorf("cluster %s: %w", spoke.Name, err)
		}
	}
	return nil
}

func (k *kind) createOne(ctx context.Context, c *Cluster) error {
	for _, dir := range []string{"config", "audit"} {
		if err := os.MkdirAll(filepath.Join(c.dir, dir), 0o750); err != nil {
			return err
		}
	}
	files := map[string]string{
		filepath.Join(c.dir, "config", "audit.yaml"): auditPolicy,
		filepath.Join(c.dir, "kind.yaml"):            fmt.Sprintf(kindConfig, c.dir),
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	err := k.kind(ctx, "create", "cluster", "--name="+k.name(c), "--kubeconfig="+c.Kubeconfig,
		"--config="+filepath.Join(c.dir, "kind.yaml"), "--wait="+k.set.config.ReadyTimeout.String())
	if err != nil {
		return err
	}
	// The API server makes it readable by root alone, which the caller need not be.
	_, err = c.Exec(ctx, "chmod", "0644", "/var/log/kubernetes/audit.log")
	return err
}

// Chains in the spoke's node; shieldChain stays, faultChain is replaced by faults.
const (
	shieldChain = "SPOKELET-SHIELD"
	faultChain  = "SPOKELET-FAULT"
)

// shield keeps the other clusters of the set from opening connections to the
// spoke: to its node or, forwarded, to its pods.
func (k *kind) shield(ctx context.Context, spoke *Cluster) error {
	var text strings.Builder
	fmt.Fprintf(&text, "*filter\n:%s - [0:0]\n:%s - [0:0]\n", shieldChain, faultChain)
	fmt.Fprintf(&text, "-A %s -j %s\n", shieldChain, faultChain)
	for _, other := range k.set.clusters {
		if other == spoke {
			continue
		}
		if err := k.describe(ctx, other); err != nil {
			return err
		}
		fmt.Fprintf(&text, "-A %s -s %s -m conntrack --ctstate NEW -j REJECT\n", shieldChain, other.Address)
	}
	for _, hook := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		fmt.Fprintf(&text, "-I %s -j %s\n", hook, shieldChain)
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
	cmd := exec.CommandContext(ctx, "docker", "exec", "--interactive", k.container(c), "iptables-restore", "-w", "--noflush") //nolint:gosec // ours
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (k *kind) destroy(ctx context.Context) error {
	var failed error
	for _, c := range k.set.clusters {
		failed = errors.Join(failed, k.kind(ctx, "delete", "cluster", "--name="+k.name(c)))
	}
	return failed
}

func (k *kind) healthy(ctx context.Context) error {
	kubectl, err := k.tools.Program(ctx, "kubectl")
	if err != nil {
		return err
	}
	for _, c := range k.set.clusters {
		args := []string{"--kubeconfig=" + c.Kubeconfig, "get", "--raw=/readyz"}
		if out, err := exec.CommandContext(ctx, kubectl, args...).CombinedOutput(); err != nil { //nolint:gosec // ours
			return fmt.Errorf("cluster %s: %w: %s", c.Name, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

var errAddress = errors.New("container has no address")

func (k *kind) describe(ctx context.Context, c *Cluster) error {
	c.AuditLog = filepath.Join(c.dir, "audit", "audit.log")
	const format = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.Gateway}} {{end}}"
	out, err := exec.CommandContext(ctx, "docker", "inspect", "--format", format, k.container(c)).Output() //nolint:gosec // ours
	if err != nil {
		return fmt.Errorf("docker inspect %s: %w", k.container(c), err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 2 {
		return fmt.Errorf("%s: %w", k.container(c), errAddress)
	}
	for _, field := range fields[:2] {
		if _, err := netip.ParseAddr(field); err != nil {
			return fmt.Errorf("%s: %w", k.container(c), err)
		}
	}
	c.Address, c.Gateway = fields[0], fields[1]
	return nil
}

func (k *kind) load(ctx context.Context, c *Cluster, tarball string) error {
	return k.kind(ctx, "load", "image-archive", tarball, "--name="+k.name(c))
}

func (k *kind) command(ctx context.Context, c *Cluster, name string, args []string) *exec.Cmd {
	inside := slices.Concat([]string{"exec", "--interactive", k.container(c), name}, args)
	return exec.CommandContext(ctx, "docker", inside...) //nolint:gosec // the caller's program is the purpose
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
		"; while crictl ps --name kube-apiserver -q | grep -q .; do sleep 0.2; done"
	if running {
		script = "[ -e " + manifest + " ] || mv " + aside + " " + manifest + "; until " + ready + "; do sleep 0.2; done"
	}
	_, err := c.Exec(ctx, "sh", "-c", script)
	return err
}

func (k *kind) kind(ctx context.Context, args ...string) error {
	program, err := k.tools.Program(ctx, "kind")
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil { //nolint:gosec // ours
		return fmt.Errorf("kind %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
