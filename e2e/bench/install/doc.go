// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install benchmarks an installation on real clusters: works, views
// and the proxy, memory and rest. Each figure that is a ratio has its baseline
// measured in the same run, in turns with it.
package install
