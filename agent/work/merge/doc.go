// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package merge decides what the update strategy Update makes of an object: it
// compares what a manifest requires with what is live and returns what is to be
// written. It is pure; whoever calls it reads and writes.
//
// The kinds that the original agent writes by typed clients have each a rule in
// kinds.go, that of library-go's resourceapply: which fields are looked at, which
// belong to somebody else, and what can only be had by a new object. Of all
// other kinds the whole content but metadata and status is replaced.
//
//   - Labels and annotations are merged. None is removed unless the manifest has
//     its key with a "-" at the end.
//   - Owners are added to those that are there; one with the same group, kind and
//     name takes the place of that one.
//   - Finalizers, status and everything else that is live stays.
//
// An object that has every field of the manifest is [Same], whatever fields it
// has besides: the API server's defaults cannot be told from what somebody added,
// and a write for each of them would never end. Lists are compared element by
// element, numbers by value, quantities by amount. So a field that somebody adds
// stays until the manifest changes; [Replace] is for that moment, for it also
// takes out what the manifest no longer has.
package merge
