// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cputime

import "time"

// threadClock reads the clock on the wall: agents run on Linux.
func threadClock() func() time.Duration { return wallClock() }
