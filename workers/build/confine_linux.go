// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package build

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

const (
	maxFiles = 256
	// maxFileSize is of each file that workerd may write: it has no need to.
	maxFileSize = 1 << 20
)

// readablePaths is what workerd reads of the system.
var readablePaths = []string{
	"/usr", "/lib", "/lib64", "/etc/ssl", "/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system/cpu",
	"/dev/null", "/dev/urandom", "/dev/random",
}

// applyAndExec applies the restrictions and executes the command.
func (c confinement) applyAndExec() error {
	if err := c.setLimits(); err != nil {
		return err
	}
	if err := c.restrictAccess(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	// The seccomp filter applies to this thread, which then executes the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := installFilter(newFilter(os.Getpid())); err != nil {
		return err
	}
	writeEvent(event{Event: eventConfined})
	if err := unix.Exec(c.Command[0], c.Command, []string{}); err != nil {
		return fmt.Errorf("execute %s: %w", c.Command[0], err)
	}
	return nil
}

// setLimits sets the resource limits. V8 reserves far more address space than it writes to, so
// only writable memory is limited.
func (c confinement) setLimits() error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_FSIZE: maxFileSize, unix.RLIMIT_DATA: c.Memory,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit of resource %d: %w", resource, err)
		}
	}
	return nil
}

// restrictAccess restricts files to those that workerd needs, and denies TCP and other processes,
// as far as the kernel supports it.
func (c confinement) restrictAccess() error {
	var folders, files []string
	for _, path := range append(append([]string{c.Command[0]}, c.Read...), readablePaths...) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case info.IsDir():
			folders = append(folders, path)
		default:
			files = append(files, path)
		}
	}
	err := landlock.V6.BestEffort().RestrictPaths(
		landlock.RODirs(folders...), landlock.ROFiles(files...), landlock.RWDirs(c.Write),
	)
	if err != nil {
		return err
	}
	if err := landlock.V6.BestEffort().RestrictNet(); err != nil {
		return err
	}
	return landlock.V6.BestEffort().RestrictScoped()
}

// killWithParent has a command killed with its process group, and when this process ends.
func killWithParent(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
