// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipe is the lower layer of the tunnel: one byte stream from the hub
// to an agent process that dialled out. It holds the interfaces and errors;
// package konnectivity below it is the pipe in use.
//
// # Contract
//
// Who the peer is comes from its verified certificate alone. What it claims
// beside that (its process) is checked for form and used for routing and logs.
//
// A pipe carries one stream at a time: its bytes have no flow control of their
// own (konnectivity has none per connection), so a second stream would stop
// with the first. Everything else is multiplexed above, in the session.
//
// Where the hub's bytes arrive is the agent's choice and fixed: the hub names
// no address.
//
// A stream that ended returns an error that wraps io.ErrUnexpectedEOF and
// never io.EOF: no pipe can tell a far end that closed from one that
// broke, and the session's TLS closes with an alert of its own. Bytes that
// arrived before the end are read first. There is no half-close. Closing a
// stream may discard what was written and has not arrived.
//
// Nothing waits without bound: a dial has a deadline of its own, queues are
// bounded in bytes, and closing the pipe closes the TCP connection under it,
// which frees whatever else was stuck.
package pipe
