// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package executor asks, for the objects of a work that names a service account,
// whether that account might write them itself: before a write, and for each
// version of the work.
//
// The answer is the API server's: SubjectAccessReviews for every verb that
// applying takes, and for the kinds that grant rights a dry run as the account,
// for only a write shows whether rights would grow. Whatever is not a plain yes
// is no; that the question could not be asked is an error of another kind.
//
// With caches a yes is remembered until the cluster's roles or bindings change,
// of which watches tell that keep nothing, and for ten minutes at most. A no is
// asked again every time, and the watches tell when either may be another.
package executor
