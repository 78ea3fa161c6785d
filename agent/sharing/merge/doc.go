// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package merge decides what an object becomes that exists in the hub and in the
// spoke and is kept the same in both: what either side changed since they were
// last in sync is applied to the other, field by field. It is pure; whoever calls
// it reads and writes.
//
// The content of an object is a map of its top-level fields as the JSON decoder of
// apimachinery gives them: metadata with labels and annotations, spec, status, and
// whatever else the resource has; no apiVersion, kind or other metadata. The base
// of a side is the content that it had when both were last in sync. The two bases
// are equal but where a side's definition drops a field.
//
//	nobody changed a field            both sides keep it
//	one side changed it               both get that side's value
//	both changed it, to the same      both keep it
//	both changed it, to others        both get the winner's, and its path is a conflict
//
// What a field is, the schema decides:
//
//   - Maps are merged by key, lists of type map by their items' keys, sets by their
//     values. Lists of other types, and maps of type atomic, are one value each.
//   - A field without a schema is treated as one that preserves unknown fields: maps
//     by key, lists as one value. So are labels and annotations.
//   - A map or list that one side removed while the other changed something in it
//     is a conflict as a whole: the winner's is taken undivided.
//   - A value that is not of the schema's type is one value, and so is a list whose
//     items lack keys or have the same: a definition can change under an object,
//     and the object must still be merged.
//   - The order of a list that is merged by key is a value of its own, which has the
//     list's path. Items that both sides added at one place stand side by side, the
//     winner's first.
//   - An absent field, null, {} and [] are four values; 1 and 1.0 are one.
//
// Where the bases differ, a field that one side's definition drops stays on the
// other as long as nobody changes it there, or changes the atomic value around it.
// After a write [Schema.Prune] tells what the definition of that side dropped.
//
// The schema is converted to that of structured-merge-diff, as API servers do it
// for server-side apply, but the walk is our own. The library's Compare names the
// leaves that changed: that a removed map had a field that the other side changed
// must be found among paths afterwards. And it refuses a content with a value that
// does not fit, an unknown field, or two items of one key.
package merge
