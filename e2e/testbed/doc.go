// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testbed is the installation that the end-to-end tests share: a hub and two
// spokes, real clusters, with Spokelet installed as its users do it. Each suite below
// e2e/suites is a package of its own that can be run alone, and then makes the clusters
// and removes them; "make e2e" has the suites share one set. What several suites do to
// it is here, what one alone does is with that suite.
package testbed
