// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package impersonation says for whom a request at the kube door is made.
//
// The hub authenticates the caller and states the result in headers; the
// agent reads them and maps the caller to an identity of its own API server.
// Both ends scrub: nothing that a caller sends under one of these names, or
// under the prefix Impersonate-, may reach the next hop.
//
// The package lives on the standard library alone, so that both ends of the
// tunnel share one definition of what is scrubbed and of what is believed.
package impersonation
