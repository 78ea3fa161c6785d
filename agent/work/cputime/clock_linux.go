// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// newThreadClock returns a clock of the processor time that the calling thread uses, which any thread
// can read. Its id is that of pthread_getcpuclockid: the complement of the thread's id, and in
// the low bits its type (include/linux/posix-timers_types.h).
func newThreadClock() func() time.Duration {
	const perThread, schedulers = 4, 2
	id := int32(^unix.Gettid()<<3 | perThread | schedulers) //nolint:gosec // thread ids have 22 bits
	var began, last unix.Timespec
	if err := unix.ClockGettime(id, &began); err != nil {
		return newWallClock()
	}
	last = began
	return func() time.Duration {
		_ = unix.ClockGettime(id, &last) // the thread exists: the goroutine is locked to it
		return time.Duration(last.Nano() - began.Nano())
	}
}
