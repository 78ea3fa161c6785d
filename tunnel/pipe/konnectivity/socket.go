// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// sessionListener is the socket that the agent dials in place of whatever it
// was told. Only this process may connect to it.
type sessionListener struct {
	*net.UnixListener
	dir string // removed with the socket; empty for a socket without a file
}

// listenSession listens in a new directory below dir, for this user alone, or
// in no file system if dir is empty and the platform has such sockets.
func listenSession(dir string) (*sessionListener, error) {
	if dir == "" && hasAbstractSockets {
		l, err := listenUnix("@spokelet-session-" + rand.Text())
		if err != nil {
			return nil, err
		}
		return &sessionListener{UnixListener: l}, nil
	}
	own, err := os.MkdirTemp(dir, "session-") // mode 0700
	if err != nil {
		return nil, err
	}
	l, err := listenUnix(filepath.Join(own, "s"))
	if err != nil {
		_ = os.RemoveAll(own)
		return nil, err
	}
	return &sessionListener{UnixListener: l, dir: own}, nil
}

func listenUnix(name string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: name})
}

// target is what the agent dials.
func (l *sessionListener) target() (network, address string) {
	return "unix", l.Addr().String()
}

// accept returns the next connection of this process. An abstract socket has
// no permissions: others in the same network namespace can find and dial it.
func (l *sessionListener) accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		own, err := isOwn(conn)
		if err == nil && own {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func (l *sessionListener) close() error {
	err := l.UnixListener.Close()
	if l.dir == "" {
		return err
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("session socket: %w", err)
	}
	return err
}
