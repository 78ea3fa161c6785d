// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node says on a spoke what its nodes are, as one node.
//
// Watcher watches the spoke's nodes and pods through trimmed caches and publishes
// a wire.NodeSummary when, and only when, it differs from the last one. What it
// says to be allocatable is what the spoke can still take from the hub: what its
// nodes have, less the requests of pods that are not the hub's. Scraper is the
// door "node": it asks every kubelet for its figures when the hub asks, and
// answers with their sum, and with those of the hub's pods under the names that
// they have on the hub.
//
// A cluster whose owner wants it is shown in groups of its nodes, by a label: there is
// a summary for each, and figures, and the cluster's own are of the rest.
//
// Nodes that are virtual nodes of a hub are left out of both: a hub that is its
// own spoke would otherwise add itself to itself for ever.
package node
