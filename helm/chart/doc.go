// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart reads charts and values from the URLs that the owner of the cluster allows:
// from servers (HTTP, by an archive's URL or through a repository's index) and registries (OCI).
//
// Every request is checked against the list of allowed URLs ([Allowed]), those of redirects
// and of a registry's answers included, and the size of every answer is limited. Charts are
// read into memory; no file is written or read.
package chart
