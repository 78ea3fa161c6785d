// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharing is the hub's side of SharedResources: custom resources whose objects are
// the same on the hub and in clusters. What becomes of two sides that differ the agent
// decides; this side publishes what the hub has, executes what agents ask for, and shows
// what they say.
//
//   - A [planner] reads the SharedResources, the clusters, the definitions and the
//     namespaces, and says which share each cluster has, or why it has none (plan.go).
//   - A [feed] follows the objects of one resource, in one version, for all clusters, and
//     keeps of those in the namespaces that shares need what is shared (feed.go, scope.go).
//   - A [share] publishes them to its cluster: objects, then a fence, then the share with
//     the name of the fence (share.go).
//   - What an agent writes is one request to the API server each, made from the version
//     that the agent has seen (write.go, request.go). Until the answer is known nothing
//     is published of the object, so that what contains the write says that it was done.
//   - A deletion that the watch reports is published as one only after the definition and
//     the namespace were read and are not about to go (evidence.go).
//   - status.go shows in SharedResources what agents say.
//
// An agent is believed about the shares of its own cluster. It chooses the name and the
// content of an object, and nothing else of a request.
package sharing
