// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cputime

import "time"

// threadClock returns a wall clock: agents run on Linux.
func threadClock() func() time.Duration { return wallClock() }
