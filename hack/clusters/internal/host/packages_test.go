// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
)

// waits is a log that says when a line about waiting was written.
type waits chan struct{}

func (w waits) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "waiting for another process") {
		close(w)
	}
	return len(line), nil
}

// fakeAptGet has every call of apt-get fail, as the real one does while another runs.
func fakeAptGet(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\nexit 100\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func present(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

func TestASecondProcessWaitsForTheOneThatInstalls(t *testing.T) {
	fakeAptGet(t)
	dir := t.TempDir()
	path, program := filepath.Join(dir, "lock"), filepath.Join(dir, "program")
	first, err := lock.Acquire(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting, second := make(waits), make(chan error, 1)
	go func() {
		log := slog.New(slog.NewTextHandler(waiting, nil))
		second <- require(t.Context(), log, path, []requirement{{"a-package", present(program)}})
	}()
	select {
	case <-waiting:
	case err := <-second:
		t.Fatalf("the second did not wait for the first: %v", err)
	}
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.Release()
	if err := <-second; err != nil {
		t.Errorf("the second installs what the first has installed: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock's file is still there: %v", err)
	}
}

func TestNothingIsLockedWhereNothingIsMissing(t *testing.T) {
	fakeAptGet(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "absent", "lock")
	log := slog.New(slog.DiscardHandler)
	if err := require(t.Context(), log, path, []requirement{{"a-package", present(dir)}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("who need not install may not be able to lock: %v", err)
	}
}
