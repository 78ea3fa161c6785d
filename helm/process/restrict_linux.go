// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
)

// readablePaths is what an HTTPS client and the functions of templates read.
var readablePaths = []string{
	"/etc/ssl", "/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/certs", "/etc/ca-certificates",
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/dev/null", "/dev/urandom",
	"/usr/share/zoneinfo", "/etc/localtime",
}

// restrictProcess denies access to most files, and to all other processes. It does nothing on a kernel
// without Landlock; before 6.12 signals are allowed.
func restrictProcess() error {
	var dirs, files []string
	for _, path := range append(certificatePaths(), readablePaths...) {
		if isDir(path) {
			dirs = append(dirs, path)
		} else {
			files = append(files, path)
		}
	}
	err := landlock.V6.BestEffort().RestrictPaths(
		landlock.RODirs(dirs...).IgnoreIfMissing(), landlock.ROFiles(files...).IgnoreIfMissing(),
	)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := landlock.V6.BestEffort().RestrictScoped(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

// certificatePaths returns where crypto/x509 reads certificate authorities if the environment says so.
func certificatePaths() []string {
	var paths []string
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		paths = append(paths, file)
	}
	for _, dir := range filepath.SplitList(os.Getenv("SSL_CERT_DIR")) {
		if dir != "" {
			paths = append(paths, dir)
		}
	}
	return paths
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
