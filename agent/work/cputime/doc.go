// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cputime bounds computations by the processor time that they take, not by
// the clock on the wall: an agent whose processor is throttled, or is wanted by
// others, comes to the same results as one that has it for itself, only later.
package cputime
