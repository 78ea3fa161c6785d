// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package livetest is what tests against real API servers have in common: how they
// find one, or skip, how they wait for each other where they have to, and what they leave
// behind, which is nothing. Packages run at the same time on one set of clusters: a test
// keeps to names of its own, and takes a Lock of what has no name.
//
// Each test names the environment variable of its cluster itself: by that the runner
// of live tests (hack/live) knows which they are.
package livetest
