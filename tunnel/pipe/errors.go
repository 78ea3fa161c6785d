// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import "errors"

var (
	// ErrBusy says that a pipe has a stream already.
	ErrBusy = errors.New("pipe has a stream already")
	// ErrClosed says that this end closed the pipe, the link or the stream.
	ErrClosed = errors.New("closed by this end")
	// ErrLost says that the connection under a pipe ended and not by Close.
	ErrLost = errors.New("connection lost")
	// ErrStalled says that a stream was closed because its reader did not
	// empty the queue in time.
	ErrStalled = errors.New("reader stalled")
	// ErrRefused says that the hub refused the agent: who it is, what it calls
	// itself, admission, or too many connections. Trying again at once is vain.
	ErrRefused = errors.New("refused by the hub")
	// ErrProcess says that a process's name is not in the grammar.
	ErrProcess = errors.New("not 1 to 63 of a-z, 0-9 and '-'")
)
