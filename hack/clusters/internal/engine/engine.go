// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine runs a Docker engine for one set of clusters, on a machine that has
// none: Debian's, unpacked and not installed, so that no service of the machine starts. It
// runs in a network namespace of its own, where its packet filter concerns nobody else,
// on a disk of its own, which is bounded and goes as one file.
//
// Nothing here removes it: all of its processes bear the set's mark or are in the set's
// control group, and its mounts are below the set's directories.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// Errors that callers may tell apart.
var (
	// ErrDisk is returned where there is too little space.
	ErrDisk = errors.New("too little disk space")
	// ErrOverlay is returned where the kernel has no overlayfs.
	ErrOverlay = errors.New("overlayfs cannot be mounted: load the kernel's module overlay")
	// ErrEnded is returned when the engine has ended by itself.
	ErrEnded = errors.New("the engine has ended")
)

// Sizes in bytes: what the engine's files can grow to, and what has to be free before it starts.
const (
	diskSize = 16 << 30
	diskFree = 8 << 30
)

// Engine is an engine, running or not.
type Engine struct {
	Dir    string       // of its files
	RunDir string       // of sockets, whose paths must be short, and volatile state
	Mark   string       // of its processes
	Cgroup string       // in which its containers' groups are
	Plan   network.Plan // its namespace; Pods are the addresses of its containers

	ReadyTimeout time.Duration // for it to answer
}

// Programs are what engines are started with.
type Programs struct {
	docker  string // directory of Docker's files
	runtime string // path of the OCI runtime
}

// Find finds the programs, fetching and building them when this machine has not done so.
func Find(ctx context.Context, tools *toolchain.Toolchain, log *slog.Logger) (Programs, error) {
	runtime, err := tools.Program(ctx, "oci-runtime")
	if err != nil {
		return Programs{}, err
	}
	docker, err := unpacked(ctx, tools, log)
	return Programs{docker, runtime}, err
}

// Environment is what programs that use the engine get to see. The client's configuration
// is nobody's: that of root may name a proxy or another engine.
func (e *Engine) Environment() []string {
	return process.Environment(e.Mark, "PATH="+e.path(), "DOCKER_HOST=unix://"+e.socket(), "DOCKER_CONFIG="+filepath.Join(e.Dir, "client"))
}

func (e *Engine) socket() string { return filepath.Join(e.RunDir, "docker.sock") }
func (e *Engine) record() string { return filepath.Join(e.Dir, "engine.json") }
func (e *Engine) config() string { return filepath.Join(e.Dir, "engine.config.json") }
func (e *Engine) data() string   { return filepath.Join(e.Dir, "data") }

// docker is a link to the directory of Docker's files, for later processes.
func (e *Engine) docker(parts ...string) string {
	return filepath.Join(append([]string{e.Dir, "docker"}, parts...)...)
}

// Log is the path of what it says.
func (e *Engine) Log() string { return filepath.Join(e.Dir, "engine.log") }

// path is the engine's programs before those of the machine.
func (e *Engine) path() string {
	return strings.Join([]string{e.docker("usr", "bin"), e.docker("usr", "sbin"), os.Getenv("PATH")}, ":")
}

// Start starts it and waits until it answers and this machine reaches its containers. Its
// network namespace exists.
func (e *Engine) Start(ctx context.Context, programs Programs) error {
	if err := e.start(ctx, programs); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (e *Engine) start(ctx context.Context, programs Programs) error {
	if err := os.MkdirAll(e.data(), 0o700); err != nil {
		return err
	}
	if err := os.Symlink(programs.docker, e.docker()); err != nil {
		return err
	}
	// In place of that of an engine that is installed, and does not run.
	config := fmt.Sprintf(`{"deprecated-key-path": %q}`, filepath.Join(e.Dir, "key.json"))
	if err := os.WriteFile(e.config(), []byte(config), 0o600); err != nil {
		return err
	}
	if err := e.mountDisk(ctx); err != nil {
		return err
	}
	started, err := process.Start(process.Spec{
		Name: "dockerd", Path: e.docker("usr", "sbin", "dockerd"), Args: e.args(programs.runtime),
		Env:  []string{"PATH=" + e.path(), "LD_LIBRARY_PATH=" + e.docker("lib", "lib")},
		Mark: e.Mark, Log: e.Log(), Namespace: e.Plan.Path(),
	}, e.record())
	if err != nil {
		return err
	}
	if err := e.await(ctx, started); err != nil {
		return err
	}
	return e.open(ctx)
}

// Strays lists the files outside of its directories that are its own: the sockets of
// containerd's shims lie in a directory that all instances of containerd share. Each
// container's bundle names its own.
func (e *Engine) Strays() []string {
	return process.ShimSockets(filepath.Join(e.RunDir, "docker", "containerd", "daemon"))
}

// RemoveEmpty removes the directories that Docker makes wherever it runs, where nobody has
// anything in them.
func RemoveEmpty() {
	for _, dir := range []string{"/run/docker/plugins", "/run/docker"} {
		_ = os.Remove(dir) // one that is not empty is somebody else's
	}
}

// Failure says, in place of the error of a program that used the engine, that the engine
// has ended, where it has.
func (e *Engine) Failure(err error) error {
	started, loadErr := process.Load(e.record())
	if err == nil || loadErr != nil || started.Alive() {
		return err
	}
	return fmt.Errorf("%w; its last lines in %s: %s: %w", ErrEnded, e.Log(), started.Tail(3), err)
}

func (e *Engine) args(runtime string) []string {
	return []string{
		"--config-file=" + e.config(),
		"--data-root=" + e.data(), "--exec-root=" + filepath.Join(e.RunDir, "docker"),
		"--pidfile=" + filepath.Join(e.RunDir, "docker.pid"), "--host=unix://" + e.socket(), "--group=root",
		"--storage-driver=overlay2", "--bridge=none", "--userland-proxy=false", "--cgroup-parent=" + e.Cgroup,
		"--exec-opt=native.cgroupdriver=cgroupfs", // systemd's wants the name of a slice
		"--add-runtime=machine=" + runtime, "--default-runtime=machine",
		"--log-opt=max-size=10m",
	}
}

// mountDisk makes the engine's disk, and mounts it.
func (e *Engine) mountDisk(ctx context.Context) error {
	var space unix.Statfs_t
	if err := unix.Statfs(e.Dir, &space); err != nil {
		return fmt.Errorf("disk %s: %w", e.Dir, err)
	}
	if free := space.Bavail * uint64(space.Bsize); free < diskFree { //nolint:gosec // a block is not that large
		return fmt.Errorf("%w in %s: %d MiB are free, want %d: make room, or set SPOKELET_CLUSTERS_STATE to a directory with more",
			ErrDisk, e.Dir, free>>20, diskFree>>20)
	}
	disk := filepath.Join(e.Dir, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(disk, diskSize); err != nil { // takes what is written alone
		return err
	}
	// Nobody reads it after a crash of the machine, so that it has no journal.
	if err := run(ctx, "mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", disk); err != nil {
		return err
	}
	if err := run(ctx, "mount", "-o", "loop,noatime", disk, e.data()); err != nil {
		return err
	}
	if !host.Overlay(e.data()) {
		return ErrOverlay
	}
	return nil
}

// await waits until the engine answers or has ended.
func (e *Engine) await(ctx context.Context, started *process.Record) error {
	ctx, cancel := context.WithTimeout(ctx, e.ReadyTimeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond) // a socket's appearance is no event of its own
	defer ticker.Stop()
	for {
		err := process.Run(e.Command(ctx, "version"))
		if err == nil {
			return nil
		}
		if !started.Alive() {
			return fmt.Errorf("%w; its last lines in %s: %s", ErrEnded, e.Log(), started.Tail(5))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w; the last lines in %s: %s", context.Cause(ctx), err, e.Log(), started.Tail(5))
		case <-ticker.C:
		}
	}
}

// Command prepares a call of the engine's client.
func (e *Engine) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.docker("usr", "bin", "docker"), args...) //nolint:gosec // ours
	cmd.Env = e.Environment()
	return cmd
}

// open makes the network that kind's nodes are in, and lets this machine reach them, as it
// does where the engine is its own.
func (e *Engine) open(ctx context.Context) error {
	if err := process.Run(e.Command(ctx, "network", "create", "--driver=bridge", "--subnet="+e.Plan.Pods().String(), "kind")); err != nil {
		return err
	}
	if err := run(ctx, "ip", "route", "add", e.Plan.Pods().String(), "via", e.Plan.Host().String()); err != nil {
		return err
	}
	return run(ctx, "nsenter", "--net="+e.Plan.Path(), "--", "iptables", "-w", "-I", "DOCKER-USER", "-i", "eth0", "-j", "ACCEPT")
}

func run(ctx context.Context, name string, args ...string) error {
	return process.Run(exec.CommandContext(ctx, name, args...)) //nolint:gosec // ours
}
