// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package work is the work engine: it makes this cluster's objects what the
// works of the hub say, keeps them so, and says what became of them.
//
// Works arrive in one canonical form, the spec of OCM's ManifestWork, whatever
// API they were written in; a [Policy] holds what differs between dialects.
//
//   - execute.go runs one work at a time per key: apply and delete never overlap.
//     plan.go decides, collect.go deletes, anchor.go records. An object is listed
//     in the work's anchor before it is applied and until it is gone, so that a
//     crash between any two steps leaves nothing that nobody knows of.
//   - owners.go says which anchors a write names as owners. Works that share an object
//     write it, and give it up, one at a time: so no write withdraws the reference of
//     another work, or brings back one that was given up.
//   - suspend.go leaves the objects of a suspended work as they are, and tells of them.
//   - compare.go says what differs from the manifests of a work that is not applied.
//   - review.go decides when the executor of a work is asked about all its manifests
//     again, permission.go asks.
//   - table.go knows every managed object by one small record, and tells drift
//     from noise by the fields that our server-side applies own. watch.go
//     feeds it; what is not managed is dropped as it is read.
//   - status.go composes what the hub is told, from what executors concluded and
//     what the table sees at that moment.
//   - copy.go keeps what is wanted for a restart without the hub.
//
// Nothing here polls: a work is looked at when the hub, a watch or a failed
// attempt of its own says so.
package work
