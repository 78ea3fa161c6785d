// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const hasAbstractSockets = true

// isOwn says whether this process is at the other end.
func isOwn(conn *net.UnixConn) (bool, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return false, err
	}
	if credErr != nil {
		return false, credErr
	}
	return int(cred.Pid) == os.Getpid(), nil
}
