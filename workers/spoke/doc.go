// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spoke reads from the API servers of clusters, by clusters/proxy of the hub, in a process
// that many clusters and accounts share. A hostile cluster may answer anything, without end, so
// workers read from clusters by this package only.
//
// # What is bounded
//
//   - An answer has at most [MaxAnswer] bytes, a refusal [MaxErrorBody], an object of a list or of
//     a watch [MaxObject], a header 64 KiB. Beyond that reading fails, with [ErrTooLarge]. Logs
//     and watches have no end; whoever reads a log bounds its lines.
//   - Objects are read one by one, as metadata alone: what a cluster's answer takes of memory is
//     one object of it, and what is kept of them is the reader's to bound.
//   - Memory: what is read and not yet decoded is on the account of its cluster ([API.Account]),
//     which has a bound, as all clusters together have. Reading fails beyond it, for that
//     cluster.
//   - Time: a cluster is read at 4 MiB a second once it has had 8 MiB. Who writes faster waits,
//     and holds up nobody else: of what was not read 32 KiB are received of a request.
//
// How many requests there are at a time is the caller's to bound.
//
// The hub itself is read by the same client ([Client.Hub]), without these bounds.
package spoke
