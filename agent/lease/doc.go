// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lease runs work in one process at a time, by a Lease (coordination.k8s.io/v1) of the
// spoke and client-go's leader election.
//
// Leader election alone leaves three gaps, which this package closes:
//
//   - It releases a lease, or tries to for as long as a renewal may take, before it reports
//     the loss. Here the work is stopped, and waited for, before the lease is released, and
//     in any case a fixed time after the last renewal began, which is before another
//     process may acquire the lease.
//   - A process that was suspended continues as if nothing had happened. Here a guard
//     refuses the work's own requests once that time has passed, by either clock.
//   - A process that resumes after another one has acquired the lease would release it in
//     the name of the new holder. Here only the holder releases a lease.
package lease
