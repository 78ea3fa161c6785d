// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package work carries the works of the hub's users to the spokes and the
// results back. The works of every API take the same way; package workconvert has what
// differs between multicluster.x-k8s.io Work and work.open-cluster-management.io
// ManifestWork.
//
// Down: a work gets its finalizer, then it is published to Sync; bodies are made
// from the informer's cache when they are sent and kept nowhere else. Up: what an
// agent reports is written at once; while a write is in flight the latest report
// waits and replaces any before it. Nothing is written that changes nothing, and
// of what changes nothing else.
//
// A work with the annotation spokelet.io/substitute refers to its cluster (package
// values). What was made of it is remembered by its references, so that a change of the
// cluster's labels or claims publishes the works that use them, and no others.
//
// A work with the annotation spokelet.io/deletion: background loses its finalizer as soon as it is
// deleted. Its deletion stays in Sync until the agent says that nothing is left; what a
// process of the hub forgets of that, the agent evicts as a work that the hub does not know.
//
// An agent is believed about the works in its own cluster's namespace, and about
// those alone. ManifestWorks elsewhere may be Open Cluster Management's: they are
// neither written nor deleted.
package work
