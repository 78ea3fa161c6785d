// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharing keeps objects of custom resources the same on the hub and in its
// cluster, as SharedResources of the hub say.
//
// The hub publishes shares and the objects that it has of them; what is to be written
// there is asked of it, one request at a time for each object (package wire). All else
// happens here: the agent follows the objects of its cluster, remembers for each what
// both sides had when they were last in step (package secretstore), and merges what each has
// changed since (package merge).
//
// A step is one request for one object. It is recorded before it is made, so that after
// a crash at any moment either its outcome can be told, or what cannot be told is named
// as a conflict. Nothing is written into an object but what is shared of it.
//
// What a side does not have was deleted only if somebody saw that: see [absence].
//
// decide.go, combine.go and record.go are pure. share.go keeps what is known of one
// share, follow.go and definition.go bring in the cluster's side and inbox.go the hub's,
// turn.go takes the steps, state.go tells the hub how things are.
package sharing
