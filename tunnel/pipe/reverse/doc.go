// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reverse is a pipe without konnectivity: the agent dials the hub over
// TLS and then serves HTTP/2 on that connection, with the hub as the client.
// A stream is a CONNECT request.
//
// It is for tests and benchmarks. It proves that the layer above depends on
// package pipe alone, and measures what konnectivity costs.
//
// On a new connection the hub asks first for the agent's process (GET
// /process, answered in the header Spokelet-Process), then says what it
// decided: GET /serve, or GET /refuse with the class of the refusal in the
// header Spokelet-Reason.
package reverse
