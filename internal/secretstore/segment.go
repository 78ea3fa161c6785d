// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"slices"
	"time"
)

// record is the state of one key. Its fields are guarded by Store.mu, but for the key,
// which does not change.
type record struct {
	key string
	// value is the latest, nil once it is deleted.
	value []byte
	// segment contains the version that Open would find; nil while that is in flight.
	segment *segment
	// durable is closed once the value is durable; nil if it is.
	durable chan struct{}
	// storedSize is the size of the version in segment.
	storedSize int32
	// copies is how many segments contain a version of the key, of whatever age.
	copies int32

	deleted bool
	// queued: there is a change that is not in a batch yet. urgent: it is in Store.urgent.
	queued, urgent bool
	// inFlight: the batch in flight contains a version.
	inFlight bool
}

func (r *record) size() int { return entrySize(r.key, r.value) }

// segment is one Secret.
type segment struct {
	// name and version are those of the Secret; version is the resourceVersion, empty before
	// the Secret is created. They and sequence belong to Open and Run.
	name, version string
	sequence      uint64

	// All below are guarded by Store.mu.
	//
	// records are all that the Secret contains a version of.
	records []*record
	// live is how many of these are the newest version, and liveSize their size.
	live, liveSize int
}

// attach makes a segment the one with the newest version of a record.
func (g *segment) attach(r *record, size int) {
	r.segment, r.storedSize = g, int32(size) //nolint:gosec // maxContent at most
	g.live++
	g.liveSize += size
}

// detach undoes attach. s.mu is held.
func (s *Store) detach(r *record) {
	g := r.segment
	if g == nil {
		return
	}
	r.segment = nil
	g.live--
	g.liveSize -= int(r.storedSize)
	if g.live == 0 {
		s.deleteAt = earliest(s.deleteAt, time.Now().Add(s.cfg.Delay))
	}
}

// clearSegment records that a segment's entries are not stored there any more. s.mu is held.
func (s *Store) clearSegment(g *segment) {
	old := g.records
	g.records = nil
	for _, r := range old {
		r.copies--
		if r.segment == g {
			s.detach(r)
		}
		s.prune(r)
	}
}

// prune drops a tombstone that hides nothing, and a deleted record that no segment contains
// any more. s.mu is held.
func (s *Store) prune(r *record) {
	if !r.deleted || r.queued || r.inFlight {
		return
	}
	if r.copies <= 1 {
		s.detach(r)
	}
	if r.copies == 0 {
		delete(s.records, r.key)
	}
}

// liveRecords returns the records whose newest version is in g. Store.mu is held.
func (g *segment) liveRecords() (live []*record, size int) {
	for _, r := range g.records {
		if r.segment == g {
			live = append(live, r)
			size += r.size()
		}
	}
	return live, size
}

// removeSegment forgets a segment whose Secret is gone. s.mu is held.
func (s *Store) removeSegment(g *segment) {
	s.clearSegment(g)
	s.segments = slices.DeleteFunc(s.segments, func(other *segment) bool { return other == g })
}

// emptySegment returns a segment without live records, nil if there is none. s.mu is held.
func (s *Store) emptySegment() *segment {
	for _, g := range s.segments {
		if g.live == 0 {
			return g
		}
	}
	return nil
}

// scheduleDeletion has an empty segment deleted after d, if there is one. s.mu is held.
func (s *Store) scheduleDeletion(d time.Duration) {
	if s.emptySegment() != nil {
		s.deleteAt = earliest(s.deleteAt, time.Now().Add(d))
	}
}
