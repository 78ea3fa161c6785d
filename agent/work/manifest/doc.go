// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest reads the manifests of a work: which object each one names, the
// configuration that is applied for it, and the order in which kinds are applied. It
// also turns errors into the texts of conditions. It knows no API server.
package manifest
