// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package merge decides what the update strategy Update makes of an object: it
// compares what a manifest requires with what is live and returns what is to be
// written. It is pure; the caller reads and writes.
//
// Each kind that OCM's agent writes with a typed client has a rule in rules.go,
// that of library-go's resourceapply: which fields are compared, which
// belong to somebody else, and what needs a new object. Of all
// other kinds the whole content besides metadata and status is replaced.
//
//   - Labels and annotations are merged. None is removed unless the manifest has
//     its key with a "-" at the end.
//   - Owners are added to the live ones; one with the same group, kind and
//     name is replaced.
//   - Finalizers, status and everything else of the live object stays.
//
// An object that has every field of the manifest is [Unchanged], whatever other fields
// it has: defaults of the API server cannot be distinguished from fields that somebody
// added, and writes for them would never end. Lists are compared element by
// element, numbers and quantities by value. A field that somebody adds therefore
// stays until the manifest changes; then [Replace] also removes what is not in the
// manifest any more.
package merge
