// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause keeps a pod's namespaces alive: it does nothing until it is
// told to stop, and reaps what is re-parented to it where the pod shares its
// process namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for sig := range signals {
		if sig != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended: one SIGCHLD may stand for several.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
