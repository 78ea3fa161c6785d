// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stream makes a net.Conn of a transport that has none: messages go in
// and out at one side, and at the other is a connection with deadlines that
// can be set, fire and be set again.
//
// Both directions are queues that are bounded in bytes. What arrives waits for
// its reader, what is written waits for the transport; neither side holds the
// other for longer than it asked for.
//
// The package knows nothing of pipes or of the network.
package stream
