// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package control is the conversation on the control door: the rules of who
// says what and when, for both ends. It holds no connection, starts no
// goroutine and reads no clock, so that a test can tell any story to it; package
// tunnel carries its frames.
//
// The hub says hello first, the agent answers with its own, and both arrive at
// the same protocol number or at ErrVersion. Then the agent may ask for a new
// certificate, one request at a time, and either side may announce that it
// drains. With the feature "role", an agent tells whether it executes works or
// stands by; without it, it executes. Frames of a kind this build does not know
// are ignored once both have said hello: they belong to a newer protocol and, by
// its rules, to a feature that both did not name.
package control

import "errors"

// Protocol numbers that this build speaks.
const (
	MinProtocol = 1
	MaxProtocol = 1
)

// FeatureRole is the name of the feature that lets an agent be a standby.
const FeatureRole = "role"

// Bounds of what a peer may say, in bytes unless named otherwise.
const (
	MaxFeatures   = 64 // names
	MaxName       = 64 // a feature, a process id, a UID
	MaxVersion    = 128
	MaxReason     = 512
	MaxCSR        = 16 << 10
	MaxBundle     = 256 << 10
	MaxFrameBytes = 512 << 10
)

var (
	// ErrVersion says that the two ranges of protocol numbers do not meet.
	ErrVersion = errors.New("no common protocol")
	// ErrOrder says that a frame came when the conversation does not allow it:
	// before the hello, a second hello, an answer that was not asked for.
	ErrOrder = errors.New("frame out of order")
	// ErrFrame says that a frame's content is out of bounds.
	ErrFrame = errors.New("malformed frame")
	// ErrPending says that a renewal is under way already.
	ErrPending = errors.New("renewal is pending")
)
