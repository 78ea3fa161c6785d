// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testscale is how often, or with how many, something is tested: with the counts
// that fit into every run, or with the full ones of docs/reliability.md. Tests alone may
// import it.
package testscale

import "os"

// Full is the environment variable that runs tests with their full counts.
const Full = "SPOKELET_TEST_FULL"

// Of returns the count of every run, or the full one where Full is set.
func Of(always, full int) int {
	if os.Getenv(Full) != "" {
		return full
	}
	return always
}
