// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

// hostsFormat tells containerd how to speak to a registry, which it would do with TLS.
const hostsFormat = `server = "http://%[1]s"

[host."http://%[1]s"]
  capabilities = ["pull", "resolve"]
`

// hostsFile is that file's name, in a folder of the registry's.
const hostsFile = "hosts.toml"

// registryHost is a name or an IPv4 address: a folder is named by it, and a text holds it.
var registryHost = regexp.MustCompile(`^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// registryHosts checks a registry, as host:port, and returns what containerd is told.
func registryHosts(registry string) (string, error) {
	host, port, err := net.SplitHostPort(registry)
	if err != nil {
		return "", fmt.Errorf("registry %q: %w: want host:port", registry, errors.Join(ErrConfig, err))
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 || !registryHost.MatchString(host) {
		return "", fmt.Errorf("registry %q: %w: want host:port", registry, ErrConfig)
	}
	return fmt.Sprintf(hostsFormat, registry), nil
}

// UsePlainRegistry has the cluster's nodes read images from a registry, named as
// host:port, by HTTP without TLS. It holds from the next image on.
func (c *Cluster) UsePlainRegistry(ctx context.Context, registry string) error {
	m, err := c.machine("use a registry")
	if err != nil {
		return err
	}
	hosts, err := registryHosts(registry)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if err := m.useRegistry(ctx, c, registry, hosts); err != nil {
		return fmt.Errorf("cluster %s: registry %s: %w", c.Name, registry, err)
	}
	return nil
}

// registries is the folder in which containerd looks registries up, each time anew.
func (n *node) registries() string { return n.path("registries") }

func (n *netns) useRegistry(_ context.Context, c *Cluster, registry, hosts string) error {
	dir := n.node(c).registries()
	// One that was made before the folder was part of the configuration has no use for it.
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the set was made by an older version", ErrUnsupported)
	}
	if err := os.MkdirAll(filepath.Join(dir, registry), 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, registry, hostsFile), []byte(hosts), 0o600)
}

// useRegistry writes to the folder that kind's images have containerd look into.
func (k *kind) useRegistry(ctx context.Context, c *Cluster, registry, hosts string) error {
	const script = `mkdir -p "/etc/containerd/certs.d/$0" && cat >"/etc/containerd/certs.d/$0/` + hostsFile + `"`
	cmd := k.command(ctx, c, "sh", []string{"-c", script, registry})
	cmd.Stdin = strings.NewReader(hosts)
	return process.Run(cmd)
}

func (l *loopback) useRegistry(context.Context, *Cluster, string, string) error {
	return fmt.Errorf("%w: there are no nodes", ErrUnsupported)
}
