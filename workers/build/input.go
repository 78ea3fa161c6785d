// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spokelet/spokelet/workers/bundle"
)

// maxInput is more than a ConfigMap can hold.
const maxInput = 4 << 20

// socketName is where a probe listens, in the folder of its process.
const socketName = "socket"

// readInput reads what is to be built.
func readInput(path string) (bundle.Input, error) {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return bundle.Input{}, fmt.Errorf("input: %w", err)
	}
	defer func() { _ = file.Close() }()
	var in bundle.Input
	if err := json.NewDecoder(io.LimitReader(file, maxInput)).Decode(&in); err != nil {
		return bundle.Input{}, fmt.Errorf("input: %w", err)
	}
	if in.Account == "" || len(in.Workers) == 0 {
		return bundle.Input{}, errors.New("input: has no account or no scripts")
	}
	return in, nil
}

// probeFile is the file with the configuration of one script.
func probeFile(worker int) string { return fmt.Sprintf("probe-%d.capnp", worker) }
