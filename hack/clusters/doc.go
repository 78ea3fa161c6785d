// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusters makes Kubernetes clusters for development and tests: a hub
// and spokes, on one machine, with the network between them as Spokelet meets
// it: a spoke can open connections to the hub, nobody can open one to a spoke.
//
// Up makes a named set (or finds it healthy and returns it), Open attaches to a
// running one, Set.Down removes it with every trace. A set outlives the process
// that made it, and can be removed by another one even if the first was killed
// half way: its state file is written before anything else exists.
//
// Where the clusters come from is the Provider: kind, real clusters in network
// namespaces, control planes alone, or clusters that exist already. What a
// provider cannot do returns an error that is ErrUnsupported.
package clusters
