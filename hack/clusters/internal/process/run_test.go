// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRunSaysWhatFailedAndTheLastThatItWrote(t *testing.T) {
	err := Run(exec.CommandContext(t.Context(), "sh", "-c", "seq 1 2000; echo no space left; exit 3"))
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 3 {
		t.Fatalf("error %v, want exit code 3", err)
	}
	if text := err.Error(); !strings.HasPrefix(text, "sh -c ") || !strings.HasSuffix(text, "no space left") || len(text) > 4200 {
		t.Errorf("%d bytes: %.100s", len(text), text)
	}
	if err := Run(exec.CommandContext(t.Context(), "true")); err != nil {
		t.Error(err)
	}
}

func TestShimSocketsAreThoseOfTheBundles(t *testing.T) {
	state := t.TempDir()
	for id, address := range map[string]string{
		"one": "unix:///run/containerd/s/0123", "two": "unix:///elsewhere/s/0123", "three": "tcp://127.0.0.1:1",
	} {
		bundle := filepath.Join(state, "io.containerd.runtime.v2.task", "moby", id)
		if err := os.MkdirAll(bundle, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bundle, "address"), []byte(address), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"/run/containerd/s/0123"}, ShimSockets(state)); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
}
