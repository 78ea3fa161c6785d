// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary stands in for workerd: it is called as that is, and what it does is in the
// file that it is given.
const (
	attempt = "serve"

	doAttempts = "attempts"
	doWait     = "wait"
	doSpin     = "spin"
	doDie      = "die"
	doNothing  = "nothing"

	// broken is the name of a link to the test binary that loads nothing.
	broken = "broken"
)

func attemptAll(args []string) int {
	text, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if filepath.Base(os.Args[0]) == broken {
		fmt.Fprintln(os.Stderr, "the library is missing")
		return 127
	}
	switch did, said, _ := strings.Cut(string(text), ":"); did {
	case doAttempts:
		_ = json.NewEncoder(os.Stderr).Encode(attempts(said))
	case doWait:
		select {}
	case doSpin:
		for { //nolint:staticcheck // it is to use the processor
		}
	case doDie:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case doNothing:
		fmt.Fprint(os.Stderr, said)
		return 1
	default:
		writeEvent(event{Event: eventListen})
		select {}
	}
	return 0
}

// attempts does what confined code might, and returns by name what came of it. The argument
// is the folder of the steps.
func attempts(work string) map[string]string {
	var word uint64
	here := uintptr(unsafe.Pointer(&word))
	call := func(number uintptr, args ...uintptr) error {
		args = append(args, 0, 0, 0, 0, 0, 0)
		if _, _, errno := unix.RawSyscall6(number, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
			return errno
		}
		return nil
	}
	parent, open := uintptr(os.Getppid()), descriptors()
	vector := unix.Iovec{Base: (*byte)(unsafe.Pointer(&word)), Len: 8}
	results := map[string]error{
		"socket inet":          call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM),
		"socket inet6":         call(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM),
		"socket inet, padded":  call(unix.SYS_SOCKET, 1<<32|unix.AF_INET, unix.SOCK_STREAM),
		"socket netlink":       call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW),
		"socket packet":        call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW),
		"socket vsock":         call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM),
		"socket unix":          call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM),
		"socketpair inet":      call(unix.SYS_SOCKETPAIR, unix.AF_INET, unix.SOCK_STREAM, 0, here),
		"socketpair unix":      call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, here),
		"io_uring":             call(unix.SYS_IO_URING_SETUP, 1, here),
		"ptrace":               call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, parent),
		"read other memory":    call(unix.SYS_PROCESS_VM_READV, parent, uintptr(unsafe.Pointer(&vector)), 1, uintptr(unsafe.Pointer(&vector)), 1),
		"write other memory":   call(unix.SYS_PROCESS_VM_WRITEV, parent, uintptr(unsafe.Pointer(&vector)), 1, uintptr(unsafe.Pointer(&vector)), 1),
		"take other file":      call(unix.SYS_PIDFD_GETFD, 0, 0, 0),
		"signal other":         call(unix.SYS_KILL, parent, 0),
		"signal itself":        call(unix.SYS_KILL, uintptr(os.Getpid()), 0),
		"limit other":          call(unix.SYS_PRLIMIT64, parent, unix.RLIMIT_CPU, 0, here),
		"user namespace":       call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"clone with namespace": call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)),
		"clone3":               call(unix.SYS_CLONE3, 0, 0),
		"bpf":                  call(unix.SYS_BPF, 0, here, 8),
		"read system":          canRead("/etc/passwd"),
		"read processes":       canRead("/proc/self/environ"),
		"read script":          canRead(filepath.Join(work, "script.js")),
		"read neighbour":       canRead(filepath.Join(filepath.Dir(work), "secret")),
		"write script":         canWrite(filepath.Join(work, "script.js")),
		"write beside":         canWrite(filepath.Join(filepath.Dir(work), "made")),
		"write own":            canWrite("made"),
		"descriptors":          open,
		"environment":          environment(),
	}
	said := map[string]string{}
	for name, err := range results {
		said[name] = "done"
		if errno, is := errors.AsType[syscall.Errno](err); is {
			said[name] = unix.ErrnoName(errno)
		} else if err != nil {
			said[name] = err.Error()
		}
	}
	return said
}

func canRead(path string) error {
	_, err := os.ReadFile(path)
	return err
}

func canWrite(path string) error { return os.WriteFile(path, []byte("x"), fileMode) }

// descriptors says which there are besides the three of every process and the control one.
func descriptors() error {
	for fd := range 64 {
		var stat unix.Stat_t
		if fd > controlFD && unix.Fstat(fd, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK {
			return fmt.Errorf("descriptor %d is a socket", fd)
		}
	}
	return nil
}

func environment() error {
	if all := os.Environ(); len(all) > 0 {
		return errors.New(strings.Join(all, " "))
	}
	return nil
}

// confineWithoutFilter hands arguments to Confine in a thread that may not install filters, as
// in a container whose own filter does not allow it.
func confineWithoutFilter(args []string) error {
	runtime.LockOSThread()
	err := installFilter([]unix.SockFilter{
		load32(offsetNumber), jump(unix.BPF_JEQ, unix.SYS_SECCOMP, 0, 1), returns(noSyscall), returns(allow),
	})
	if err != nil {
		return err
	}
	return Confine(args)
}
