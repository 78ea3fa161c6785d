// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workconvert maps the works of every API to the canonical form that agents
// are sent, and what agents report to the status that the API's clients expect.
// It has no client and no clock: the hub and an agent that serves works by itself
// share it.
//
// An agent sends conditions in one order and knows nothing of what is stored.
// What clients see of order and time is made here, by merging a report into the
// status before it. For ManifestWork the rules are those of Open Cluster
// Management:
//
//   - A manifest keeps its conditions by its identity, even at another ordinal.
//   - A condition keeps its place, and its transition time moves with its status.
//   - A manifest's Applied of another generation, and StatusFeedbackSynced with
//     other values, are new: they go to the end of the list with a new time.
//   - What rules set goes when it is reported no more; what third parties set is
//     never touched.
package workconvert
