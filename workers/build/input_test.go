// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/spokelet/spokelet/workers/bundle"
)

// workerd is the program, or the test is skipped.
func workerd(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv("SPOKELET_WORKERD")
	if path == "" {
		tb.Skip("SPOKELET_WORKERD is not set: hack/workerd.sh makes a workerd")
	}
	return path
}

// writeInput writes an input as the operator does.
func writeInput(tb testing.TB, in bundle.Input) string {
	tb.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "input.json")
	write(tb, path, string(raw))
	return path
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), fileMode); err != nil {
		tb.Fatal(err)
	}
}
