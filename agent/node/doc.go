// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node says on a spoke what its nodes are, as one node.
//
// Watcher watches the spoke's nodes through a trimmed cache and publishes a
// wire.NodeSummary when, and only when, it differs from the last one. Scraper is
// the door "node": it asks every kubelet for its figures when the hub asks, and
// answers with their sum.
//
// Nodes that are virtual nodes of a hub are left out of both: a hub that is its
// own spoke would otherwise add itself to itself for ever.
package node
