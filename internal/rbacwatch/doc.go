// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbacwatch asks an API server what users may do, and notices when that has changed:
// it watches the metadata of the four kinds that RBAC reads (roles, cluster roles and their
// bindings) and stores none of it.
//
// [IsAllowed] makes one SubjectAccessReview. [Watch] reports each change. A [Schedule]
// repeats a review after a change, because an API server answers from caches of its own,
// which may not have seen the change yet. A [Rechecker] is both, for a process that need not
// know what has changed. Changes of other authorizers are not noticed.
//
// Both sides use it: the agent for executors of works and for open views, the hub for
// those who may create works in the namespace of a cluster.
package rbacwatch
