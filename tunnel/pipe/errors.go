// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import "errors"

// Errors of pipes, links and streams.
var (
	// ErrBusy says that a pipe has a stream already.
	ErrBusy = errors.New("pipe has a stream already")
	// ErrClosed says that this end closed the pipe or the link.
	ErrClosed = errors.New("closed by this end")
	// ErrLost says that the connection under a pipe ended and not by Close.
	ErrLost = errors.New("connection lost")
	// ErrStalled says that a stream was closed because its reader did not
	// empty the queue in time.
	ErrStalled = errors.New("reader stalled")
)

// Errors of connecting.
var (
	// ErrRefused is what an agent gets for any of those below. The hub does not
	// say more, and another attempt at once meets the same.
	ErrRefused = errors.New("refused by the hub")
	// ErrStranger says that an agent has no certificate of a cluster of this
	// hub.
	ErrStranger = errors.New("not a cluster of this hub")
	// ErrProcess says that a process's name is not in the grammar.
	ErrProcess = errors.New("not 1 to 63 of a-z, 0-9 and '-'")
	// ErrNotAdmitted says that Admit refused a cluster.
	ErrNotAdmitted = errors.New("not admitted")
	// ErrTooMany says that a cluster has all the pipes that it may have.
	ErrTooMany = errors.New("too many connections")
)
