// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package address decides which addresses that a cluster reports for a pod the hub
// shows. Endpoints of Services, network policies and pods/proxy lead to them, so one is
// taken over only where it leads nowhere on the hub:
//
//	special        loopback, link-local, multicast and the like, in every spelling
//	Limit          the CIDRs that the record of the cluster allows, if it names any
//	Network        what the hub itself uses: its Services, nodes, pods and API servers
//
// It does no I/O: package pod tells a Network what there is.
package address
