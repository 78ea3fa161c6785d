// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package base keeps small records across restarts of the agent, in Secrets of its
// namespace: for each object that is kept the same in two clusters, the last state that
// both had. A record can be made durable before something is written to one of the
// clusters, so that whoever comes after a crash knows what was under way.
//
// # Segments
//
// A segment is a Secret with many records, compressed, of about 512 KiB at most before
// that. Each write of a segment has a number, its sequence, which only grows; a key that
// lies in several segments has the value of the one with the highest. All values are in
// memory, too: a segment is read by [Open] alone, and written from memory.
//
// What has changed is written in batches, each into one segment. A batch takes along what
// is still needed of every segment that holds no more of it than the batch does, the
// smallest first. One of these segments is updated in place, or a new one is created; the
// others are empty then and are deleted later, or are the next to be updated. So one key
// that changes again and again costs one small update each time, a change among 10,000
// records is written about six times in all, and 10,000 records lie in a few dozen
// segments.
//
// A deletion is written as a tombstone while a segment that is not updated by the same
// write has a version of the key, be it an old one; else its absence is enough. It is
// dropped by the next write of its segment, once it hides nothing.
//
// # Failures
//
// A write is repeated as it is, with the same bytes, until it has succeeded: whether one
// without an answer took effect shows by what is stored then. An update is bound to the
// version that this process knows, and so is a deletion. A segment that somebody else has
// changed or deleted is written anew under another name, for memory is the truth.
//
// A killed process may leave segments of which nothing is needed any more, and one write
// that was not reported as durable; both are harmless. Two processes must not write at the
// same time: the caller holds what is given to [Open] to its lease.
//
// store.go is what callers see, open.go reads, batch.go says what is written next, write.go
// writes it, run.go says when, segment.go counts who needs what, codec.go is the format.
package base
