// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// handle is a pidfd: it refers to one process for good, also after its end,
// when the kernel may give its id to another.
type handle struct{ fd int } // -1 for a process that has already ended

func open(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return &handle{-1}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return &handle{fd}, nil
}

func (h *handle) close() {
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
	}
}

func (h *handle) signal(signal unix.Signal) error {
	if h.fd < 0 {
		return nil
	}
	err := unix.PidfdSendSignal(h.fd, signal, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// wait blocks until the process has ended (a pidfd becomes readable then) or
// ctx ends. The poll has to be left now and then because a context has no file
// descriptor to wait for.
func (h *handle) wait(ctx context.Context) error {
	const leave = 100 * time.Millisecond
	for h.fd >= 0 {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
		n, err := unix.Poll(fds, int(leave.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Within calls fn on a thread that is in the network namespace bound to path;
// what fn starts is born there. An empty path means the present namespace.
func Within(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, so that no other
		// goroutine finds itself in the wrong namespace.
		runtime.LockOSThread()
		result <- enter(path, fn)
	}()
	return <-result
}

func enter(path string, fn func() error) error {
	namespace, err := os.Open(path) //nolint:gosec // a namespace of ours
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }() // only referred to
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	return fn()
}
