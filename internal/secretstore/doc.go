// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secretstore is a durable map from keys to small values, kept in Secrets of the
// agent's namespace. A value can be made durable before its caller acts on it, so that the
// process after a crash knows what was under way.
//
// # Segments
//
// A segment is a Secret with many records, compressed, of about 512 KiB at most before
// that. Each write of a segment has a sequence number, which only grows: of a key that
// several segments contain, the value with the highest counts. All values are in memory,
// too: only [Open] reads segments.
//
// Changes are written in batches, each into one segment. A batch also compacts: it takes
// over the live records of every segment that has no more of them than the batch itself,
// the smallest first. One of these segments is updated in place, or a new one is created;
// the others are empty then, and are deleted or reused. So a key that changes again and
// again costs one small update each time, a change among 10,000 records is written about
// six times in all, and 10,000 records need a few dozen segments.
//
// A deletion is written as a tombstone while another segment contains an older version of
// the key. The tombstone is dropped by the next write of its segment once it hides nothing.
//
// # Failures
//
// A write is retried with the same content until it has succeeded. Updates and deletions
// are bound to the version that this process knows. A Secret that somebody else has changed
// is overwritten and one that was deleted is created again, since memory has all records.
//
// A killed process may leave segments without live records, and one write that was not
// reported as durable; both are harmless. Two processes must not write at the same time: the
// caller binds the client that it passes to [Open] to its lease.
package secretstore
