// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live is the hub's aggregated API server, group live.spokelet.io. It
// answers from the sessions and from the spokes, as they are now, and stores
// nothing:
//
//   - clusters: who is connected, since when, how far away. Get, list and watch
//     are served from the board, which the records of the hub (ManagedClusters)
//     and the events of the sessions feed.
//   - clusters/proxy: the API server of a cluster, under the caller's identity.
//   - viewworks: a question to one or many clusters; creating it returns the
//     answer.
//
// The server delegates who a caller is and what the caller may do to the hub's
// API server. What a caller may do in a spoke is for the spoke to say: every
// request that leaves here states the caller (internal/impersonation) and goes through
// the spoke's kube door.
//
// The package gets at clusters through the interfaces Sessions and Records
// alone, and never assumes that this process holds every session.
package live
