// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel measures the tunnel in one process over loopback: a session
// in its default configuration beside HTTP/2 over TLS without a tunnel.
//
// Both serve the same handler. Rounds are interleaved, and a figure is the
// median of the rounds' ratios, so that what else the machine does falls on
// both alike.
//
// The slow link is made in user space: it delays and paces the bytes between
// agent and hub. See Line.
package tunnel
