// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/internal/network"
)

// Cluster is one cluster of a set.
type Cluster struct {
	Name       string
	Kubeconfig string // path; self-contained, cluster-admin
	AuditLog   string // path of the API server's audit log, JSON lines; empty for Existing
	Node       string // name of the cluster's only node; empty for Existing and ControlPlane
	Address    string // IP of the cluster's node, where NodePorts and hostPorts answer; empty for Existing
	Gateway    string // IP of this machine as the cluster reaches it; empty for Existing

	set   *Set
	index int // in the set; the hub is 0
	dir   string
}

// machine is a provider whose clusters have nodes or processes to act on.
type machine interface {
	load(ctx context.Context, c *Cluster, tarball string) error
	command(ctx context.Context, c *Cluster, name string, args []string) *exec.Cmd
	setAPIServer(ctx context.Context, c *Cluster, running bool) error
	useRegistry(ctx context.Context, c *Cluster, registry, hosts string) error
}

// faulty is a provider that can break the network between a spoke and the hub.
type faulty interface {
	fault(ctx context.Context, spoke *Cluster, mode Mode) error
}

// LoadImage makes the images of a docker-archive tarball known to the cluster's
// nodes under the tags in it; pods use them with imagePullPolicy IfNotPresent
// or Never.
func (c *Cluster) LoadImage(ctx context.Context, tarball string) error {
	m, err := c.machine("load an image")
	if err != nil {
		return err
	}
	if err := m.load(ctx, c, tarball); err != nil {
		return fmt.Errorf("cluster %s: image %s: %w", c.Name, tarball, err)
	}
	return nil
}

// Command prepares a program to run in the cluster's network: on this machine's
// files for Netns, on the node's for Kind. The caller sets its streams and
// starts it; it ends when ctx does, for Kind if it notices that its streams end.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	m, err := c.machine("run a command")
	if err != nil {
		return nil, err
	}
	return m.command(ctx, c, name, args), nil
}

// Exec runs a program in the cluster's network and returns its standard output.
// An error holds what it wrote to standard error, and is an *exec.ExitError
// when it ran and failed.
func (c *Cluster) Exec(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd, err := c.Command(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("cluster %s: %s: %w: %s", c.Name, name, err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// StopAPIServer stops the API server alone; its connections are closed.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.setAPIServer(ctx, false) }

// StartAPIServer starts the API server again and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error { return c.setAPIServer(ctx, true) }

func (c *Cluster) setAPIServer(ctx context.Context, running bool) error {
	m, err := c.machine("stop or start the API server")
	if err != nil {
		return err
	}
	if err := m.setAPIServer(ctx, c, running); err != nil {
		return fmt.Errorf("cluster %s: API server: %w", c.Name, err)
	}
	return nil
}

func (c *Cluster) machine(what string) (machine, error) {
	m, ok := c.set.driver.(machine)
	if !ok {
		return nil, fmt.Errorf("cluster %s: %s: %w (%s)", c.Name, what, ErrUnsupported, c.set.state.Provider)
	}
	return m, nil
}

// Mode is a way in which the network between a spoke and the hub fails.
type Mode = network.Mode

// The modes of Cut.
const (
	Drop        = network.Drop        // all packets are lost
	DropToHub   = network.DropToHub   // those of the spoke are lost
	DropFromHub = network.DropFromHub // those of the hub are lost
	Reset       = network.Reset       // every TCP packet is answered with RST
)

// Modes lists the modes of Cut.
func Modes() []Mode { return network.Modes() }

// Cut makes the network between the spoke and the hub fail, also for connections
// that exist. It replaces an earlier cut of that spoke in one step.
func (s *Set) Cut(ctx context.Context, spoke *Cluster, mode Mode) error {
	driver, ok := s.driver.(faulty)
	if !ok {
		return fmt.Errorf("cluster %s: cut the network: %w (%s)", spoke.Name, ErrUnsupported, s.state.Provider)
	}
	if spoke.index == 0 {
		return fmt.Errorf("cluster %s: cut the network: %w: want a spoke", spoke.Name, ErrConfig)
	}
	if err := driver.fault(ctx, spoke, mode); err != nil {
		return fmt.Errorf("cluster %s: %w", spoke.Name, err)
	}
	return nil
}

// Heal ends what Cut began. Connections that neither side gave up go on.
func (s *Set) Heal(ctx context.Context, spoke *Cluster) error {
	return s.Cut(ctx, spoke, network.None)
}

// healAll heals every spoke where the provider can have cut one.
func (s *Set) healAll(ctx context.Context) error {
	if _, ok := s.driver.(faulty); !ok {
		return nil
	}
	for _, spoke := range s.Spokes() {
		if err := s.Heal(ctx, spoke); err != nil {
			return err
		}
	}
	return nil
}
