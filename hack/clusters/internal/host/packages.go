// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

// ErrMissing is returned when programs are missing and cannot be installed.
var ErrMissing = errors.New("programs are missing")

// requirement is a Debian package and the test for what is needed of it.
type requirement struct {
	pkg     string
	present func() bool
}

func requirements() []requirement {
	return []requirement{
		{"containerd", programs("containerd", "ctr", "containerd-shim-runc-v2")},
		{"runc", programs("runc")},
		{"containernetworking-plugins", func() bool { return NetworkPlugins() != "" }},
		{"iptables", programs("iptables", "iptables-restore")},
		{"conntrack", programs("conntrack")},
		{"iproute2", programs("ip")},
		{"util-linux", programs("nsenter", "mount")},
		{"busybox-static", func() bool { return Busybox() != "" }},
	}
}

func programs(names ...string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			_, err := exec.LookPath(name)
			return err != nil
		})
	}
}

func file(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// NetworkPlugins is the directory of the CNI plugins, or empty.
func NetworkPlugins() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}

// Busybox is the path of a statically linked busybox, or empty: a dynamic one
// does not run in an image of its own.
func Busybox() string {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return ""
	}
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // only read
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			return ""
		}
	}
	return path
}

// installLock keeps a second process from running apt-get, which would not wait for the
// first.
const installLock = "/run/spokelet-install.lock"

// Require makes sure that all programs are there, by apt-get where it exists.
func Require(ctx context.Context, log *slog.Logger) error {
	return require(ctx, log, installLock, requirements())
}

// RequireForEngine does so for a set with a container engine and node images of its own.
func RequireForEngine(ctx context.Context, log *slog.Logger) error {
	return require(ctx, log, installLock, append(requirements(),
		requirement{"debootstrap", programs("debootstrap")},
		requirement{"debian-archive-keyring", file("/usr/share/keyrings/debian-archive-keyring.gpg")},
		requirement{"e2fsprogs", programs("mkfs.ext4")},
	))
}

func require(ctx context.Context, log *slog.Logger, lockPath string, needed []requirement) error {
	absent := missing(needed)
	if len(absent) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w: install what these Debian packages hold: %s", ErrMissing, strings.Join(absent, " "))
	}
	held, err := lock.Acquire(ctx, lockPath, func() {
		log.Info("waiting for another process that installs packages", "packages", strings.Join(absent, " "))
	})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMissing, strings.Join(absent, " "), err)
	}
	defer func() { _ = held.Remove() }() // a file that stays harms nobody
	if absent = missing(needed); len(absent) == 0 {
		return nil // the one we waited for has installed them
	}
	log.Info("installing packages with apt-get", "packages", strings.Join(absent, " "))
	install := append([]string{"install", "--yes", "--no-install-recommends"}, absent...)
	if err := aptWithLists(ctx, "", install...); err != nil {
		return err
	}
	if absent = missing(needed); len(absent) > 0 {
		return fmt.Errorf("%w after apt-get: those of %s", ErrMissing, strings.Join(absent, " "))
	}
	return nil
}

// Download fetches packages, and none that they depend on, as files into a directory.
func Download(ctx context.Context, log *slog.Logger, dir string, packages ...string) error {
	held, err := lock.Acquire(ctx, installLock, func() {
		log.Info("waiting for another process that installs packages", "packages", strings.Join(packages, " "))
	})
	if err != nil {
		return err
	}
	defer func() { _ = held.Remove() }() // a file that stays harms nobody
	return aptWithLists(ctx, dir, append([]string{"download"}, packages...)...)
}

func missing(needed []requirement) []string {
	var names []string
	for _, r := range needed {
		if !r.present() {
			names = append(names, r.pkg)
		}
	}
	return names
}

// aptWithLists runs apt-get in a directory. The lists of packages may be old or absent: then
// again with new ones.
func aptWithLists(ctx context.Context, dir string, args ...string) error {
	if apt(ctx, dir, args...) == nil {
		return nil
	}
	if err := apt(ctx, "", "update"); err != nil {
		return err
	}
	return apt(ctx, dir, args...)
}

func apt(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...) //nolint:gosec // fixed package names
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return process.Run(cmd)
}
