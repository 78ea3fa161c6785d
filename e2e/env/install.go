// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters"
)

const (
	// HubNamespace is where the hub's chart goes.
	HubNamespace = "spokelet-system"
	// AgentNamespace is where the agent's chart goes.
	AgentNamespace = "spokelet-agent"

	// publicNodePort is the port of the hub's node that agents dial.
	publicNodePort = 30443

	// helmTimeout bounds one helm call that waits for pods.
	helmTimeout = "4m"
)

// Env is an installation in the making: a hub and its spokes, and the programs
// that act on them.
type Env struct {
	Set   *clusters.Set
	Build Build
	// Bin is where helm, kubectl and the plugin are.
	Bin string
	// Out gets the transcript: each command, then what it printed.
	Out io.Writer
}

// Kubectl returns kubectl for one cluster, with the plugin on its path. The
// cluster is chosen by the environment: kubectl takes no flag before the name of
// a plugin.
func (e *Env) Kubectl(c *clusters.Cluster) Command {
	return Command{
		Path: filepath.Join(e.Bin, "kubectl"),
		Env:  []string{"PATH=" + e.Bin + ":/usr/local/bin:/usr/bin:/bin", "KUBECONFIG=" + c.Kubeconfig},
	}
}

// KubectlAt returns another kubectl, by its path, for one cluster.
func (e *Env) KubectlAt(path string, c *clusters.Cluster) Command {
	other := e.Kubectl(c)
	other.Path = path
	return other
}

// Helm returns helm for one cluster.
func (e *Env) Helm(c *clusters.Cluster) Command {
	return Command{Path: filepath.Join(e.Bin, "helm"), Args: []string{"--kubeconfig", c.Kubeconfig}}
}

// PublicAddress is what agents dial: a NodePort of the hub's host.
func (e *Env) PublicAddress() string {
	return e.Set.Hub().Address + ":" + strconv.Itoa(publicNodePort)
}

// InstallHub loads the hub's image and installs its chart, and waits until
// the hub is ready.
func (e *Env) InstallHub(ctx context.Context, extra ...string) error {
	img, err := e.Build.Image(ctx, "spokelet-hub")
	if err != nil {
		return err
	}
	if err := e.Set.Hub().LoadImage(ctx, img.Archive); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := e.restricted(ctx, e.Set.Hub(), HubNamespace); err != nil {
		return err
	}
	args := []string{"upgrade", "--install", "spokelet-hub", e.chart("spokelet-hub"),
		"--namespace", HubNamespace, "--create-namespace",
		"--set", "publicAddress=" + e.PublicAddress(),
		"--set", "publicService.type=NodePort",
		"--set", "publicService.nodePort=" + strconv.Itoa(publicNodePort),
		"--set", "image.tag=" + e.Build.Tag(),
		"--wait", "--timeout", helmTimeout}
	return e.say(e.Helm(e.Set.Hub()).Run(ctx, append(args, extra...)...))
}

// Join makes the record of a spoke on the hub with the plugin, and runs the
// helm line that it prints against the spoke.
func (e *Env) Join(ctx context.Context, spoke *clusters.Cluster, extra ...string) error {
	img, err := e.Build.Image(ctx, "spokelet-agent")
	if err != nil {
		return err
	}
	if err := spoke.LoadImage(ctx, img.Archive); err != nil {
		return fmt.Errorf("spoke %s: %w", spoke.Name, err)
	}
	if err := e.restricted(ctx, spoke, AgentNamespace); err != nil {
		return err
	}
	line, err := e.Kubectl(e.Set.Hub()).Run(ctx, "spokelet", "join", spoke.Name, "--agent-chart", e.chart("spokelet-agent"))
	if err != nil {
		return err
	}
	// The nodes of some hubs of tests have no spec.podCIDRs: the records say then which
	// addresses pods may have, and here that is all but the hub's.
	if _, err := e.Kubectl(e.Set.Hub()).Run(ctx, "annotate", "managedcluster", spoke.Name, "spokelet.io/pod-addresses=0.0.0.0/0,::/0", "--overwrite"); err != nil {
		return err
	}
	args, err := helmArgs(line)
	if err != nil {
		return err
	}
	args = append(args, "--set", "image.tag="+e.Build.Tag(), "--wait", "--timeout", helmTimeout)
	return e.say(e.Helm(spoke).Run(ctx, append(args, extra...)...))
}

// UpgradeAgent changes values of an agent that is installed, and waits until its
// pods are ready.
func (e *Env) UpgradeAgent(ctx context.Context, spoke *clusters.Cluster, values string) error {
	return e.say(e.Helm(spoke).Run(ctx, "upgrade", "spokelet-agent", e.chart("spokelet-agent"),
		"--namespace", AgentNamespace, "--reuse-values", "--set", values, "--wait", "--timeout", helmTimeout))
}

// restricted makes a namespace that admits only pods of the restricted profile
// (Pod Security Standards), so that an installation proves to fit it.
func (e *Env) restricted(ctx context.Context, c *clusters.Cluster, namespace string) error {
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, namespace)
	_, err := e.Kubectl(c).RunInput(ctx, strings.NewReader(manifest), "apply", "-f", "-")
	return err
}

// helmArgs takes the arguments out of the one line that join prints.
func helmArgs(printed string) ([]string, error) {
	for line := range strings.Lines(strings.ReplaceAll(printed, "\\\n", " ")) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "helm" {
			return fields[1:], nil
		}
	}
	return nil, fmt.Errorf("join: no helm line in %q", printed)
}

func (e *Env) chart(name string) string { return filepath.Join(e.Build.Root, "charts", name) }

func (e *Env) say(output string, err error) error {
	if err != nil {
		return err
	}
	_, err = io.WriteString(e.Out, output)
	return err
}
