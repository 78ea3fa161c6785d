// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transition writes a step of a request to the API server: the state in the
// spec, and its entry in the history of the status.
//
// The definition of the resource decides whether that is one write or two. Without the
// status subresource an update writes both. With it an update of the object drops what
// it says of the status, and an update of the status what it says of the spec. The
// status is then written first, for these reasons:
//
//   - The spec hands over the turn. Who takes it finds the history complete, so
//     that the two parties never write at once.
//   - A reader never sees a state that has no entry.
//   - A crash between the two writes leaves an entry whose state is not entered yet.
//     Whoever does the step again finds the entry, and writes the spec alone. In the
//     other order the entry would be lost, as nobody does a step again that the spec
//     says is done.
package transition
