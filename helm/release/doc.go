// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release installs, upgrades and uninstalls releases with Helm's own code, for one
// request of the agent (see package message).
//
// What Helm does is left to Helm: this package reads the chart first, says beforehand what
// Helm would say only in part (a release that is in the way, that failed, that is pending),
// follows what is being done, and finds out what became of a request that was interrupted,
// by the label that it put on the record of its revision.
//
// The choices are those that the helm command makes by itself. An install is applied at the
// server, an upgrade as the release was before, and neither takes over what another manager
// has changed. An upgrade without values keeps those of the revision before; one with values
// drops them. Schemas and OpenAPI are checked, templates resolve no names, hooks are run and
// waited for, and nothing is rolled back: a release that failed is recorded as failed, and
// can be upgraded or uninstalled. An uninstall keeps no history. Other than the command does,
// the time of a request bounds all its waits together, kinds of definitions that were just
// made are waited for, and of objects whose API version is not served it is said which one is.
package release
