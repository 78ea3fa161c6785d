// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package livetest is what tests against real API servers have in common: how they
// find one, or skip, and what they leave behind, which is nothing.
//
// Each test names the environment variable of its cluster itself: by that the runner
// of live tests (hack/live) knows which they are.
package livetest
