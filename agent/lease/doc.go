// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lease lets one process at a time do what only one may do, by a Lease
// (coordination.k8s.io/v1) of the spoke and client-go's leader election.
//
// Leader election alone leaves three gaps, which are closed here. It gives a lease
// up, or tries to for as long as a renewal may take, before it tells that the
// lease is lost; so the work is ended, and waited for, before the lease is given
// up, and in any case a fixed time after the last renewal was begun, which is
// before another process may take the lease. And a process that was stopped for
// a while goes on as if nothing had happened; so a guard on the work's own
// requests refuses them once that time has passed, by either clock. And a process
// that comes back to a lease which is no longer its own would give it up in the
// name of the new holder; so a lease is only given up by who holds it.
package lease
