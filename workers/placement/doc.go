// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement creates the ManifestWork of a bundle for a cluster, and reads its status.
//
//   - [Work] makes the ManifestWork of a bundle in one cluster: a namespace of the account
//     with a Deployment and all that belongs to it.
//   - [Revision] names what was asked for. It is an annotation of the Deployment, and a rule
//     of the work makes the agent repeat it, with the image, when all pods are available.
//     So an answer says what it is an answer to, however late it comes.
//   - [Status] reads that answer.
//
// # While pods are replaced
//
// Pods of the old and of the new revision run side by side for a while, and the same objects
// serve both. Services and the NetworkPolicy therefore name ports, for a script may have
// another number in each. Secrets are named by the release that they belong to and never
// change; those of the old revision stay until the new one is served ([Placement.Before]),
// as an old pod that restarts reads them again.
//
// # Who writes what
//
// The Deployment has no number of replicas: the autoscaler's is the only one. It, the
// autoscaler and the routes are applied by the server, so that a field that a work no longer
// has goes, and one that others own stays. The rest is updated, which is what works do
// unless they say otherwise.
//
// # Who reads logs
//
// The tail worker of an image has a port of its own ([bundle.TailPort]) that no Service leads
// to. A user that [Options.TailUser] names may read the logs of the account's pods and POST
// to them by way of the API server; nobody else gets a right by a work.
//
// The package reads no cluster: the same placement makes the same bytes.
package placement
