// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// loopback is the provider of control planes alone, on ports of 127.0.0.1 that
// were free. All clusters share the machine's network: nothing keeps the hub
// from a spoke, and no fault can be made.
type loopback struct {
	set   *Set
	tools *toolchain.Toolchain
}

func (l *loopback) portsFile(c *Cluster) string { return filepath.Join(c.dir, "ports.json") }

func (l *loopback) plane(c *Cluster) (*plane, error) {
	content, err := os.ReadFile(l.portsFile(c))
	if err != nil {
		return nil, err
	}
	p := &plane{
		cluster: c, tools: l.tools, host: netip.MustParseAddr("127.0.0.1"),
		services: netip.MustParsePrefix("10.96.0.0/16"), // nothing routes to it
	}
	if err := json.Unmarshal(content, &p.ports); err != nil {
		return nil, fmt.Errorf("%s: %w", l.portsFile(c), err)
	}
	return p, nil
}

func (l *loopback) create(ctx context.Context) error {
	for _, program := range []string{"kube-apiserver", "etcd"} {
		if _, err := l.tools.Program(ctx, program); err != nil {
			return err
		}
	}
	if err := l.reservePorts(listenAnywhere); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range l.set.clusters {
		if err := l.describe(ctx, c); err != nil {
			return err
		}
		group.Go(func() error { return l.bring(ctx, c) })
	}
	return group.Wait()
}

func (l *loopback) bring(ctx context.Context, c *Cluster) error {
	p, err := l.plane(c)
	if err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if err := p.boot(ctx); err != nil {
		return err
	}
	l.set.config.Log.Info("API server is ready", "cluster", c.Name)
	return nil
}

// listenAnywhere listens on a port that is free, below those that Linux gives to whoever asks
// for any: some of the servers listen much later.
func listenAnywhere() (net.Listener, error) {
	for {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000))) //nolint:gosec // no secret
		listener, err := net.Listen("tcp", address)                                    //nolint:noctx // returns at once
		if !errors.Is(err, syscall.EADDRINUSE) {
			return listener, err
		}
	}
}

// reservePorts finds free ports, for all clusters at once so that they
// differ. Another program can take one before the server does; then Up fails and says so.
func (l *loopback) reservePorts(listen func() (net.Listener, error)) error {
	var listeners []net.Listener
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close() // it has served its purpose
		}
	}()
	for _, c := range l.set.clusters {
		var chosen ports
		for _, port := range []*int{&chosen.API, &chosen.Etcd, &chosen.EtcdPeer, &chosen.Controllers} {
			listener, err := listen()
			if err != nil {
				return fmt.Errorf("cluster %s: %w", c.Name, err)
			}
			listeners = append(listeners, listener)
			address, isTCP := listener.Addr().(*net.TCPAddr)
			if !isTCP {
				return fmt.Errorf("cluster %s: %w", c.Name, net.UnknownNetworkError(listener.Addr().Network()))
			}
			*port = address.Port
		}
		if err := l.savePorts(c, chosen); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Name, err)
		}
	}
	return nil
}

func (l *loopback) savePorts(c *Cluster, chosen ports) error {
	content, err := json.Marshal(chosen)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(l.portsFile(c), content, 0o600)
}

func (l *loopback) describe(_ context.Context, c *Cluster) error {
	c.Address, c.Gateway = "127.0.0.1", "127.0.0.1"
	c.AuditLog = filepath.Join(c.dir, "audit", "audit.log")
	return nil
}

func (l *loopback) healthy(ctx context.Context) error {
	for _, c := range l.set.clusters {
		p, err := l.plane(c)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cluster %s: %w", c.Name, ErrIncomplete)
		}
		if err != nil {
			return err
		}
		if err := p.healthy(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *loopback) destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	return process.KillAll(ctx, func() []int {
		return process.Marked(l.set.state.dir(l.set.config.StateDir))
	})
}

func (l *loopback) setAPIServer(ctx context.Context, c *Cluster, running bool) error {
	p, err := l.plane(c)
	if err != nil {
		return err
	}
	return p.setAPIServer(ctx, running)
}

func (l *loopback) load(context.Context, *Cluster, string) error {
	return fmt.Errorf("%w: there are no nodes", ErrUnsupported)
}

func (l *loopback) command(ctx context.Context, _ *Cluster, name string, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...) //nolint:gosec // the caller's program is the purpose
}
