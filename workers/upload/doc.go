// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upload reads what wrangler sends when it deploys: a form (multipart/form-data, RFC
// 7578) with a part metadata and a part for each module. It knows the metadata of Cloudflare's
// API, and maps it to what a WorkerDeployment has.
//
// A setting that would have to be enforced and is not is refused by its name, and so is one that
// nobody knows. What has no effect here is left out: observability, placement and the like.
//
// The package has no clients, stores nothing and serves nothing. It holds no more of a body than
// its limits and two MiB, and no error of it repeats a value.
package upload
