// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"strings"
)

// shimDir is where the sockets of containerd's shims are, of all its instances.
const shimDir = "/run/containerd/s/"

// ShimSockets lists the sockets of the shims that an instance of containerd has started, by
// the bundles in its state directory: nothing else says whose they are.
func ShimSockets(state string) []string {
	bundles, err := filepath.Glob(filepath.Join(state, "io.containerd.runtime.v2.task", "*", "*", "address"))
	if err != nil {
		return nil
	}
	var sockets []string
	for _, path := range bundles {
		content, err := os.ReadFile(path) //nolint:gosec // below a directory of ours
		socket, isUnix := strings.CutPrefix(strings.TrimSpace(string(content)), "unix://")
		if err == nil && isUnix && strings.HasPrefix(socket, shimDir) {
			sockets = append(sockets, socket)
		}
	}
	return sockets
}
