// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadClock reads, from any thread, how long the calling thread has computed since.
// It is pthread_getcpuclockid: the complement of the thread's id, and in the low bits
// that it is a thread's, and which of its clocks (include/linux/posix-timers_types.h).
func threadClock() func() time.Duration {
	const perThread, schedulers = 4, 2
	id := int32(^unix.Gettid()<<3 | perThread | schedulers) //nolint:gosec // thread ids have 22 bits
	read := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(id, &t); err != nil {
			return time.Duration(time.Now().UnixNano()) // the wall's
		}
		return time.Duration(t.Nano())
	}
	began := read()
	return func() time.Duration { return read() - began }
}
