// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package work is the work engine: it applies the works of the hub to this cluster, repairs
// what drifts from them, deletes what they no longer name, and reports their status.
//
// Works arrive in one canonical form, the spec of OCM's ManifestWork, whatever API they
// were written in; a [Policy] holds what differs between dialects.
//
// The packages below know nothing of the engine:
//
//   - manifest reads manifests and orders kinds.
//   - inventory knows every managed object by one small record, tells drift from noise,
//     and returns which works are to be queued.
//   - record keeps the anchors. An object is listed in the work's anchor before it is
//     applied and until it is gone, so that a crash between any two steps leaves nothing
//     that no anchor lists.
//   - speccache keeps what the hub wants for a restart without the hub.
//
// In this package, execute.go runs one work at a time per key, so that apply and delete
// never overlap; plan.go decides, write.go and fieldmanagers.go apply, prune.go deletes,
// driftreport.go compares a work that is not applied, suspend.go leaves the objects of a
// suspended work as they are. access.go and reviewschedule.go decide when the executor of
// a work is checked again, status.go composes what the hub is told.
//
// Nothing here polls: a work is reconciled when the hub, a watch or a failed attempt of
// its own says so.
package work
