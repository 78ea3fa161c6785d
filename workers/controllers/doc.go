// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers holds the controllers of worker bundles on the hub. Each of them writes
// the kinds of one step of the way from a WorkerDeployment to the clusters:
//
//	deployments  WorkerDeployment -> WorkerRelease, with a copy of its Secret
//	accounts     WorkerAccount and its releases -> JobBuilder; the finished build -> WorkerBundle
//	builds       JobBuilder -> Job in the operator's namespace; its end -> status
//	bundles      WorkerBundle -> ManifestWork for each cluster; their status -> status
//
// All state is in these objects: a controller that is started anew goes on where the last
// one stopped. In the namespaces of clusters, where others write too, a work is a bundle's by
// its name and the UID of the bundle; in the operator's own a Job is a build's by its labels.
package controllers
