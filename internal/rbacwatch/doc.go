// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbacwatch notices that what users may do in a cluster has changed: it watches the
// four kinds that RBAC reads (roles, their bindings, and those of the whole cluster) by
// their metadata and keeps nothing of them.
//
// [Follow] reports each change. A [Schedule] has questions asked again after one: an API
// server answers from caches of its own, which may not have seen the change yet. [Reviews]
// are both, for a process that need not know what has changed. What other authorizers
// decide is not seen here.
//
// Both sides use it: the agent for executors of works and for open views, the hub for
// those who may create works in the namespace of a cluster.
package rbacwatch
