// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package executor checks whether the service account that a work names may write
// an object of the work itself: before each write, and for each version of the work.
//
// The API server decides, by SubjectAccessReviews for every verb that applying
// needs, and for the kinds that grant rights by a dry run as the account, because
// only a write shows whether rights would grow. Anything but an explicit permission
// is a denial; a failed review is an error of another type.
//
// With caches a permission is cached until the cluster's roles or bindings change,
// which are watched by their metadata, and for ten minutes at most. A denial is
// never cached.
package executor
