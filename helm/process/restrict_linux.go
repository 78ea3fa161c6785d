// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
)

// readablePaths is what a client of HTTPS reads, and what the functions of templates do.
var readablePaths = []string{
	"/etc/ssl", "/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/certs", "/etc/ca-certificates",
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/dev/null", "/dev/urandom",
	"/usr/share/zoneinfo", "/etc/localtime",
}

// restrictProcess gives up all files but some, and all other processes. A kernel without Landlock
// does nothing of that, and one before 6.12 lets signals through.
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

// certificatePaths are where crypto/x509 reads certificate authorities if it is told to.
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
