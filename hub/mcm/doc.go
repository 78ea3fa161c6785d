// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mcm serves the APIs that view and change objects of clusters: the Work of
// mcm.ibm.com, ManagedClusterView and ManagedClusterAction. WorkSet and ResourceView,
// which make Works, are package fanout's.
//
// Each object is parsed to a [request]: a view, an action, or why it is neither. Views and
// actions are published to Sync for the cluster that they name (ADR 0017), in the name of
// the author that the hub's webhook has recorded, as long as that user may create such
// objects in the cluster's namespace. Objects that ask the same as the same user share a
// view. What comes back is written into the statuses of those that ask: at once, and then
// paced, and nothing that changes nothing, also after a restart: of results the cache
// keeps digests ([Strip]). So it does of large templates, whose number and size are up to
// tenants of the hub: they are read when an action is sent.
//
// An agent is believed about the views and actions that are published to its own cluster.
// An action is published until its result is in its status, which has the generation that
// the cluster has answered.
//
// dialect.go and a file for each API are pure; access.go, views.go and clusters.go keep
// state, each behind a lock of its own; controller.go publishes objects to Sync,
// statuswriter.go writes results.
package mcm
