// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// newThreadClock reads, from any thread, how long the calling thread has computed since.
// It is pthread_getcpuclockid: the complement of the thread's id, and in the low bits
// that it is a thread's, and which of its clocks (include/linux/posix-timers_types.h).
func newThreadClock() func() time.Duration {
	const perThread, schedulers = 4, 2
	id := int32(^unix.Gettid()<<3 | perThread | schedulers) //nolint:gosec // thread ids have 22 bits
	var began, last unix.Timespec
	if err := unix.ClockGettime(id, &began); err != nil {
		return newWallClock()
	}
	last = began
	return func() time.Duration {
		_ = unix.ClockGettime(id, &last) // the thread is there: it is not left meanwhile
		return time.Duration(last.Nano() - began.Nano())
	}
}
