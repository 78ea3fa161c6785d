// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// tiny is a build of a program that says what is given.
func tiny(t *testing.T, says string) build {
	t.Helper()
	source := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module tiny\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { print(\"" + says + "\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return build{
		tool:   tool{name: "tiny", pkg: ".", programs: []string{"tiny", "alias"}},
		source: source, cache: t.TempDir(), log: slog.New(slog.DiscardHandler),
	}
}

func TestEnsureBuildsOnceForAllWhoAsk(t *testing.T) {
	b := tiny(t, "hello")
	left := filepath.Join(b.cache, ".tiny-killed")
	if err := os.Mkdir(left, 0o750); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	dirs := make([]string, 3)
	for i := range dirs {
		group.Go(func() {
			dir, err := b.ensure(t.Context())
			if err != nil {
				t.Error(err)
			}
			dirs[i] = dir
		})
	}
	group.Wait()
	for _, dir := range dirs {
		if dir != dirs[0] {
			t.Errorf("%s is not %s", dir, dirs[0])
		}
	}
	for _, program := range b.tool.programs {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dirs[0], program)).CombinedOutput()
		if err != nil || string(out) != "hello" {
			t.Errorf("%s says %q, %v", program, out, err)
		}
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed build left is still there: %v", err)
	}
}

func TestEnsureBuildsAnewWhenTheSourcesChange(t *testing.T) {
	b := tiny(t, "hello")
	first, err := b.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := tiny(t, "goodbye")
	other.cache = b.cache
	second, err := other.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Error("different sources share a binary")
	}
}

func TestEnsureShowsTheCompilersErrorAndLeavesNothing(t *testing.T) {
	b := tiny(t, "hello")
	if err := os.WriteFile(filepath.Join(b.source, "broken.go"), []byte("package main\n\nvar x int = undefinedName\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := b.ensure(t.Context())
	var failed *exec.ExitError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "undefinedName") {
		t.Errorf("error %v, want the compiler's", err)
	}
	left, err := filepath.Glob(filepath.Join(b.cache, "*tiny-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestProgramRefusesWhatNoToolProvides(t *testing.T) {
	_, err := New(slog.New(slog.DiscardHandler)).Program(t.Context(), "emacs")
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v, want %v", err, ErrUnknown)
	}
}

func TestModuleNamesTheVersionAndHoldsTheFiles(t *testing.T) {
	version, dir, err := New(slog.New(slog.DiscardHandler)).Module(t.Context(), "metrics-server")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version, "v0.") {
		t.Errorf("version: got %q", version)
	}
	if !exists(filepath.Join(dir, "charts", "metrics-server", "Chart.yaml")) {
		t.Errorf("%q has no chart", dir)
	}
}

func TestSourceDirHoldsEveryTool(t *testing.T) {
	dir, err := sourceDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools() {
		if !exists(filepath.Join(dir, "tools", tool.name)) {
			t.Errorf("%s has no tool %s", dir, tool.name)
		}
	}
}
