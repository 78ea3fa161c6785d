// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live is the hub's aggregated API server, group live.spokelet.io. It serves
// the present state of sessions and spokes and stores nothing:
//
//   - clusters: who is connected, since when, how far away. Get, list and watch
//     are served from the clusterStore, which follows the records of the hub
//     (ManagedClusters) and the events of the sessions.
//   - clusters/proxy: the API server of a cluster, under the caller's identity.
//   - viewworks: a query of one or many clusters; creating one returns its
//     results.
//
// The server delegates authentication and authorization to the hub's API server. A
// spoke authorizes what a caller may do in it: every request to a spoke names the caller
// (internal/impersonation) and goes through the spoke's kube door.
//
// The package gets at clusters through the interfaces Sessions and Records
// alone, and never assumes that this process holds every session.
package live
