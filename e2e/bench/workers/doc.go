// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workers measures worker bundles: how long it takes from a WorkerDeployment that is
// written until all clusters serve the code that it names, and what a build needs. It has
// clusters of its own: a hub, two spokes, an object store and a registry, all real.
package workers
