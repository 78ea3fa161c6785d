// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharing keeps objects of custom resources in sync between the hub and its cluster,
// as SharedResources of the hub say.
//
// The hub publishes shares and its objects; the agent publishes writes for the hub, one at a
// time for each object (package wire). The agent does the rest: it watches the objects of its
// cluster, records the content that both sides had when they were last in sync (package
// secretstore), and merges what each has changed since (package merge).
//
// A step is one request for one object. It is recorded before it is made, so that after
// a crash at any moment its outcome can be found out, or is reported as a conflict. Only the
// shared fields of an object are written.
//
// An object that is absent on one side counts as deleted only with evidence: see
// [deletionEvidence].
//
// A reconciliation of an object has three phases: resolve.go finds out what became of the
// pending write, decide.go and merge.go decide the next step (they are pure), and execute.go
// executes it. journal.go and request.go are below them: records, and requests to both sides.
// share.go has the state of a share. watch.go, list.go and definition.go update it from the
// cluster and receive.go from the hub; report.go reports to the hub.
package sharing
