// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxFiles bounds the open files and connections of a process.
const maxFiles = 256

// setLimits limits a process that has not read its request yet. Memory is what setrlimit(2)
// calls data: all private writable memory, such as the heap and the stacks of a Go program.
func setLimits(pid int, memory int64) error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA: uint64(memory), unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, //nolint:gosec // validated
	} {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("resource %d: %w", resource, err)
		}
	}
	return nil
}

// socketPair returns two connected sockets, which no other process inherits.
func socketPair() (ends [2]*os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return ends, fmt.Errorf("socketpair: %w", err)
	}
	return [2]*os.File{os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "helm")}, nil
}
