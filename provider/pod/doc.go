// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod is the hub's side of the pods that are bound to virtual nodes.
//
// A Controller does for each node what a kubelet does: it watches the node's pods,
// and by name the ConfigMaps and Secrets that they refer to, and writes what
// becomes of them. What runs a pod is the agent of the cluster; everything
// between the two is typed resources of Sync (api/wire):
//
//	pod, pod.object          what there should be; publish.go, package podobject
//	pod.forced               what was deleted by force, by its UID; forceddeletion.go
//	pod.token                the tokens of those that get the hub's; token.go
//	pod.status, pod.event    what there is; report.go, event.go
//	pod.namespace, .gone     namespaces that agents made for pods; namespace.go
//
// Both ways are level-based: a reconnect, or another hub process, costs what
// differs. Nothing is said of absence before a node's pods have been listed, so
// that no agent ends pods on an empty list. Nor is an agent asked before what it has
// to say of them: what nobody can place yet stays where it is.
//
// What a report makes of a pod's status is a pure function, merge.go. It is
// written when it differs from what the hub has, whoever changed that, but only
// while the agent's stream is there: what is to be said of a cluster that is cut
// off is the node controller's.
//
// The pods of all virtual nodes of a cluster are kept as those of one; group.go.
//
// Who may touch what: a node's lock guards its pods, and is held while they are
// published, so that Sync sees the order of the watch. It is taken before the
// lock of the objects, and both before those of Sync's sources; the callbacks of
// Sync's mirrors take it, and so nothing here calls a mirror.
package pod
