// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"time"
)

// fileInterval is how often the files of --terminate-on-files are looked at. They
// are few and local, and mounted Secrets are replaced through links, of which
// events tell in as many ways as there are volumes.
const fileInterval = 2 * time.Second

// waitForChange returns the name of the first file that is not as it was, or
// nothing when ctx ends. A file that is not there is empty.
func waitForChange(ctx context.Context, files []string) string {
	before := make([][sha256.Size]byte, len(files))
	for i, name := range files {
		before[i] = hashFile(name)
	}
	ticker := time.NewTicker(fileInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-ticker.C:
		}
		for i, name := range files {
			if hashFile(name) != before[i] {
				return name
			}
		}
	}
}

func hashFile(name string) [sha256.Size]byte {
	h := sha256.New()
	if f, err := os.Open(name); err == nil { //nolint:gosec // the operator names the files
		_, _ = io.Copy(h, f) // what cannot be read is as good as not there
		_ = f.Close()
	}
	return [sha256.Size]byte(h.Sum(nil))
}
