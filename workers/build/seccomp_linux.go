// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package build

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deniedCalls are system calls that fail with EPERM: those that reach a network socket, another
// process, or a part of the kernel that workerd does not need.
var deniedCalls = []uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KCMP,
	unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_MOUNT, unix.SYS_UMOUNT2,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
}

// newNamespaces are the flags of clone that make them.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Offsets in struct seccomp_data. An argument has 64 bits, of which the first 32 are the
// lower ones: these machines are little-endian.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArgument     = 16
)

const (
	allow = unix.SECCOMP_RET_ALLOW
	deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// noSyscall makes C libraries take clone, whose flags a filter can read.
	noSyscall = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	kill      = unix.SECCOMP_RET_KILL_PROCESS
)

// newFilter returns the program that the kernel runs for each system call of a process.
func newFilter(pid int) []unix.SockFilter {
	program := []unix.SockFilter{
		load32(offsetArchitecture),
		jump(unix.BPF_JEQ, architecture, 1, 0), returns(kill),
		load32(offsetNumber),
	}
	if foreignBit != 0 { // the numbers of x32
		program = append(program, jump(unix.BPF_JSET, foreignBit, 0, 1), returns(kill))
	}
	for _, number := range deniedCalls {
		program = append(program, jump(unix.BPF_JEQ, number, 0, 1), returns(deny))
	}
	program = append(program,
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), returns(noSyscall),
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4), load32(offsetArgument),
		jump(unix.BPF_JSET, newNamespaces, 0, 1), returns(deny), returns(allow),
	)
	self := uint32(pid) //nolint:gosec // a pid is small
	for _, only := range []struct{ number, first uint32 }{
		{unix.SYS_SOCKET, unix.AF_UNIX}, {unix.SYS_SOCKETPAIR, unix.AF_UNIX},
		// It may abort, and ask for its own limits.
		{unix.SYS_KILL, self}, {unix.SYS_TGKILL, self}, {unix.SYS_PRLIMIT64, 0},
	} {
		program = append(program,
			jump(unix.BPF_JEQ, only.number, 0, 4), load32(offsetArgument),
			jump(unix.BPF_JEQ, only.first, 0, 1), returns(allow), returns(deny),
		)
	}
	return append(program, returns(allow))
}

func load32(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips yes instructions if the test holds, else no.
func jump(test uint16, with uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: yes, Jf: no, K: with}
}

func returns(verdict uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
}

// installFilter installs the filter for this thread and for what it executes.
func installFilter(program []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("seccomp: no new privileges: %w", err)
	}
	//nolint:gosec // it has some hundred instructions
	head := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	//nolint:gosec // there is no function for it
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&head)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
