// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// packages are Debian's with the engine, its client, and what they need that is on no
// machine otherwise. What they share with other clusters (containerd, runc, iptables) is
// installed.
func packages() []string { return []string{"docker.io", "tini", "libdevmapper1.02.1"} }

// errPackages is returned for packages of another release that hold something else.
var errPackages = errors.New("the packages do not hold what those of Debian bookworm do")

// unpacked gives the directory with the files of the packages, fetched by apt-get on the
// first call on this machine. The release of Debian decides which they are.
func unpacked(ctx context.Context, tools *toolchain.Toolchain, log *slog.Logger) (string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("engine: %w", err)
	}
	key := toolchain.Key(append(packages(), string(release))...)
	return tools.Keep(ctx, "docker", key, func(ctx context.Context, dir string) error {
		if err := host.Download(ctx, log, dir, packages()...); err != nil {
			return err
		}
		return unpack(ctx, dir)
	})
}

// unpack unpacks the packages in a directory, in place of them.
func unpack(ctx context.Context, dir string) error {
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := run(ctx, "dpkg-deb", "--extract", archive, dir); err != nil {
			return err
		}
		if err := os.Remove(archive); err != nil {
			return err
		}
	}
	// Its directory is named by the architecture in Debian's spelling.
	libraries, err := filepath.Glob(filepath.Join(dir, "lib", "*", "libdevmapper.so.*"))
	if err != nil {
		return err
	}
	for _, program := range []string{"usr/bin/docker", "usr/sbin/dockerd"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil || len(libraries) == 0 {
			return errPackages
		}
	}
	return os.Symlink(filepath.Base(filepath.Dir(libraries[0])), filepath.Join(dir, "lib", "lib"))
}
