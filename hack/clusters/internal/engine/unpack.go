// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// packages are Debian's with the engine, its client, and what they need that is on no
// machine otherwise. What they share with other clusters (containerd, runc, iptables) is
// installed.
func packages() []string { return []string{"docker.io", "tini", "libdevmapper1.02.1"} }

// errDownload is returned where apt-get has fetched nothing.
var errDownload = errors.New("apt-get download brought no package")

// unpacked gives the directory with the files of the packages, fetched by apt-get on the
// first call on this machine. The release of Debian decides which they are.
func unpacked(ctx context.Context, tools *toolchain.Toolchain) (string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("engine: %w", err)
	}
	key := toolchain.Key(append(packages(), string(release))...)
	return tools.Keep(ctx, "docker", key, unpack)
}

func unpack(ctx context.Context, dir string) error {
	if err := download(ctx, dir); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(archives) == 0 {
		return errors.Join(errDownload, err)
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
	if err != nil || len(libraries) == 0 {
		return errors.Join(errDownload, err)
	}
	return os.Symlink(filepath.Base(filepath.Dir(libraries[0])), filepath.Join(dir, "lib", "lib"))
}

// download fetches the packages; the lists may be old or absent: then again.
func download(ctx context.Context, dir string) error {
	fetch := func() error {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"download"}, packages()...)...) //nolint:gosec // ours
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get download: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if fetch() == nil {
		return nil
	}
	if err := run(ctx, "apt-get", "update"); err != nil {
		return err
	}
	return fetch()
}
