// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flow says whose turn it is on a request, what they do in it, and what the
// history holds after it. It is pure: it does no I/O and reads no clock.
//
//	JOB1 REQUESTED   the worker enters JOB1 STARTED
//	JOB1 STARTED     the worker enters JOB1 COMPLETED
//	JOB1 COMPLETED   the director enters JOB2 REQUESTED
//	JOB2 REQUESTED   the worker enters JOB2 STARTED
//	JOB2 STARTED     the worker enters JOB2 COMPLETED
//	JOB2 COMPLETED   the director is finished
//
// Only the party whose turn it is writes, so that the two never write at once. Every
// other job or state is refused by both, as whoever wrote it may mean anything by it.
package flow
