// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestKeepBuildsOnceForAKey(t *testing.T) {
	t.Setenv(CacheEnv, t.TempDir())
	tools := New(slog.New(slog.DiscardHandler))
	built := 0
	build := func(_ context.Context, dir string) error {
		built++
		return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	}
	var dirs []string
	for _, key := range []string{Key("a", "b"), Key("a", "b"), Key("ab")} {
		dir, err := tools.Keep(t.Context(), "thing", key, build)
		if err != nil {
			t.Fatal(err)
		}
		if !exists(filepath.Join(dir, "file")) {
			t.Errorf("%s lacks what was built", dir)
		}
		dirs = append(dirs, dir)
	}
	if dirs[0] != dirs[1] || dirs[0] == dirs[2] || built != 2 {
		t.Errorf("built %d times, in %v", built, dirs)
	}
}

func TestKeepLeavesNothingOfABuildThatFails(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(CacheEnv, cache)
	errBoom := errors.New("boom")
	_, err := New(slog.New(slog.DiscardHandler)).Keep(t.Context(), "thing", Key(), func(_ context.Context, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), errBoom)
	})
	if !errors.Is(err, errBoom) {
		t.Errorf("error %v, want %v", err, errBoom)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*thing-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
