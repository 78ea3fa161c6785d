// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart reads charts and values from where the owner of the cluster allows it: from
// servers (HTTP, by the archive's URL or through a repository's index) and registries (OCI).
//
// Every request is held to the list of allowed URLs ([Allowed]), those of redirects and of
// a registry's answers included, and every answer to a size. Charts are read into memory;
// no file is written or read.
package chart
