// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package work carries the works of the hub's users to the spokes and the
// results back. One file per dialect maps it to the canonical form and its
// status from it; multicluster.x-k8s.io Work is the first.
//
// Down: a work gets its finalizer, then it is published to Sync; bodies are made
// from the informer's cache when they are sent and kept nowhere else. Up: what an
// agent reports is written at once; while a write is in flight the latest report
// waits and replaces any before it. Nothing is written that changes nothing.
//
// An agent is believed about the works in its own cluster's namespace, and about
// those alone.
package work
