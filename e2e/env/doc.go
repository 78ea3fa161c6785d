// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package env takes a set of clusters and makes it an installation: it builds
// the binaries and images, installs the charts with helm and joins the spokes
// with the plugin, all through the same commands that a person would type. The
// demo, the end-to-end tests and the benchmarks share it.
package env
