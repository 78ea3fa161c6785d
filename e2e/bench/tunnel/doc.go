// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel measures the tunnel in one process over loopback: a session
// over the konnectivity pipe and one over the reverse HTTP/2 pipe, both in
// their default configuration, beside HTTP/2 over TLS without a tunnel.
//
// All of them serve the same handler. Rounds are interleaved, a figure is the
// median of the rounds' ratios, so that what else the machine does falls on
// all alike. Figures of the reverse pipe bear the prefix "pipe.h2.".
//
// The slow link is made in user space: it delays and paces the bytes between
// agent and hub. See Line.
package tunnel
