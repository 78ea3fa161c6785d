// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release installs, upgrades and uninstalls releases with Helm's own code, for one
// request of the agent (see package message).
//
// This package loads the chart first, reports in full what Helm reports only in part (an
// existing, failed or pending release), reports the progress, and determines the outcome of an
// interrupted request, by the label of the record of its revision. Helm does the rest.
//
// The options are the defaults of the helm command. An install uses server-side apply, an
// upgrade the method of the release, and neither takes over fields of another manager. An
// upgrade without values keeps those of the revision before; one with values drops them.
// Schemas and OpenAPI are validated, templates resolve no host names, hooks run and are waited
// for, and nothing is rolled back: a failed release is recorded as failed, and can be upgraded
// or uninstalled. An uninstall keeps no history. Unlike with the command, the timeout of a
// request bounds all its waits together, kinds of new definitions are waited for, and an error
// names the served version of objects whose API version is not served.
package release
