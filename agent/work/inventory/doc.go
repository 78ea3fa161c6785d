// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory knows every object that a work has something to do with by one small
// record: which works claim it, what they want of it, how it was last applied, and how it
// was last seen. It tells drift from noise by the fields that the agent's server-side
// applies own.
//
// It is a state machine that calls nobody: watches and executors record in it what they
// saw and did, and get back which works are to be queued.
package inventory
