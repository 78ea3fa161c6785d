// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudflare serves the part of Cloudflare's API that wrangler calls, below /client/v4:
// its routes, its envelope and its error codes. What is served is described in openapi.yaml.
//
// A request is limited, authenticated and authorized before its handler is called, all in one
// place; a handler turns the request into a call of the packages that do the work, and what
// they return into the shapes that wrangler reads. What is not served is refused by name: no
// answer of success stands for something that did not happen.
package cloudflare
