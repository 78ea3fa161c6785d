// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharing is the hub's half of SharedResources: custom resources whose objects are in
// sync between the hub and clusters. The agent merges both sides; this half publishes the
// objects of the hub, executes the writes that agents request, and shows what they report.
//
// The [Controller] starts parts that share a registry and have a queue each:
//
//   - The [planController] plans which share each cluster has, or why it has none, from
//     SharedResources, clusters, definitions and namespaces (planning.go, plan.go).
//   - An [objectWatch] watches the objects of one resource, in one version, for all clusters,
//     and stores the shared part of those in the namespaces of shares (watch.go, scope.go). The
//     [scopeLister] lists namespaces that are new to a watch.
//   - A [share] publishes objects to its cluster, then a fence, then the share with the name of
//     the fence (share.go, entry.go).
//   - The [writeExecutor] executes each write with one request to the API server, bound to the
//     version that the agent has seen (write.go, request.go). Until the response is known the
//     object is not published, so that what contains the write names it as applied.
//   - The [deletionVerifier] publishes a deletion only after the definition and the namespace
//     were read and are not being deleted (deletion.go).
//   - The [statusWriter] shows in SharedResources what agents report (status.go,
//     clusterstate.go).
//
// An agent is trusted about the shares of its own cluster only. It chooses the name and the
// content of an object, and nothing else of a request.
package sharing
