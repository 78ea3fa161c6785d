// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upload reads what wrangler sends when it deploys: a form (multipart/form-data, RFC
// 7578) with a part metadata and a part for each module. It knows the metadata of Cloudflare's
// API, and maps it to what a WorkerDeployment has.
//
// Settings that cannot be enforced, and unknown ones, are refused by name. Settings without effect
// here, such as observability and placement, are ignored.
//
// The package has no clients and stores nothing. It holds no more of a body than its limits and two
// MiB, and its errors repeat no values.
package upload
