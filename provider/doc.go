// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provider shows each accepted cluster as a virtual node of the hub.
//
// A Provider holds one virtualNode for each ManagedCluster that the hub accepts,
// whether it is connected or not. What is known of a cluster (its record, its
// session, its node summary) is a nodeState; nodeState.node turns it into the Node that
// the hub should have. A virtualNode's goroutine keeps the real Node equal to
// that through virtual-kubelet's NodeController, which also renews the lease.
// Everything happens on an event: at rest only Leases are written.
//
// A cluster that is shown in groups of its nodes has a virtualNode for each, which
// the cluster's own node holds (groups.go).
//
// Locks: a nodeState is guarded by its virtualNode's lock; the
// NodeController is driven and stopped by the virtualNode's own goroutine
// alone, because its callback may block for as long as the controller lives.
// A Node that is not ours (its providerID says so) is never written.
//
// The package imports tunnel and api, and nothing of the hub. Below it, the
// package pod keeps the pods that are bound to the nodes, and the package kubelet
// is the nodes' kubelet endpoint.
package provider
