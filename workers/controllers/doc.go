// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers holds the controllers of worker bundles on the hub. Each of them writes
// the kinds of one step from a WorkerDeployment to the clusters:
//
//	deployments  WorkerDeployment -> WorkerRelease, with a copy of its Secret
//	accounts     WorkerAccount and its releases -> JobBuilder; the finished build -> WorkerBundle
//	builds       JobBuilder -> Job in the operator's namespace; its end -> status
//	bundles      WorkerBundle -> ManifestWork for each cluster; their status -> status
//
// All state is in these objects, so a restarted controller continues where the last one stopped.
// In the namespaces of clusters, where others write too, a work belongs to a bundle by its name and
// the UID of the bundle; in the operator's namespace a Job belongs to a build by its labels.
package controllers
