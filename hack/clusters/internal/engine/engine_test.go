// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartWantsSpaceOnTheDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts a small disk, which needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounts a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	e := &Engine{Dir: dir}
	err := e.Start(t.Context(), Programs{docker: "/nowhere"})
	if !errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v, want %v in %s", err, ErrDisk, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "disk")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a disk was made all the same: %v", err)
	}
}

func TestFailureSaysThatTheEngineHasEnded(t *testing.T) {
	e := &Engine{Dir: t.TempDir()}
	errBoom := errors.New("cannot connect")
	if err := e.Failure(errBoom); !errors.Is(err, errBoom) || errors.Is(err, ErrEnded) {
		t.Errorf("before it was started: %v", err)
	}
	started, err := process.Start(process.Spec{Name: "dockerd", Path: "/bin/sleep", Args: []string{"3600"}, Log: e.Log()}, e.record())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Failure(errBoom); !errors.Is(err, errBoom) || errors.Is(err, ErrEnded) {
		t.Errorf("while it runs: %v", err)
	}
	if err := started.Stop(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	err = e.Failure(errBoom)
	if !errors.Is(err, ErrEnded) || !errors.Is(err, errBoom) || !strings.Contains(err.Error(), e.Log()) {
		t.Errorf("once it has ended: %v", err)
	}
	if err := e.Failure(nil); err != nil {
		t.Errorf("what did not fail: %v", err)
	}
}

func TestTheEngineWorksWhereSystemdIs(t *testing.T) {
	e := &Engine{Dir: "/set/engine", RunDir: "/run/set", Cgroup: "/spokelet/set"}
	args := e.args("/runtime")
	if !slices.Contains(args, "--cgroup-parent=/spokelet/set") || !slices.Contains(args, "--exec-opt=native.cgroupdriver=cgroupfs") {
		t.Errorf("systemd's driver of control groups takes no such parent: %v", args)
	}
}

func TestPackagesOfAnotherReleaseAreNotTakenForTheEngine(t *testing.T) {
	if err := unpack(t.Context(), t.TempDir()); !errors.Is(err, errPackages) {
		t.Errorf("error %v, want %v", err, errPackages)
	}
}
