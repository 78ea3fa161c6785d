// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is the command tree of "kubectl spokelet": join a cluster, list
// clusters, detach one.
//
// The commands talk to the hub's API server and to nothing else, with the rights
// of whoever runs them. Machine-readable output goes to stdout; whatever is meant
// for people alone goes to stderr.
package plugin
