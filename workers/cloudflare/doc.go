// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudflare serves the part of Cloudflare's API that wrangler calls, below /client/v4:
// its routes, its envelope and its error codes. What is served is described in openapi.yaml.
//
// A request is limited, authenticated and authorized in one place before its handler is called. A
// handler calls the packages that do the work and converts their results to the JSON that wrangler
// reads. Unsupported products are refused by name: an answer of success always means that the
// request was carried out.
package cloudflare
