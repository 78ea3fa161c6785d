// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"slices"
	"time"
)

// record is what the store knows of one key. Its fields are guarded by Store.mu, but for
// the key, which does not change.
type record struct {
	key string
	// value is the latest, nil once it is deleted.
	value []byte
	// holder has the version that Open would find, if somebody needs it; nil while that
	// is being written anew.
	holder *segment
	// done is closed once the value is durable; nil if it is.
	done chan struct{}
	// held is what the version counts in its holder.
	held int32
	// copies is how many segments have a version of the key, of whatever age.
	copies int32

	deleted bool
	// queued: there is a change that no batch has taken yet. urgent: it is in Store.urgent.
	queued, urgent bool
	// taken: it belongs to the batch that is being written.
	taken bool
}

func (r *record) size() int { return entrySize(r.key, r.value) }

// segment is one Secret.
type segment struct {
	name string
	// version is the resourceVersion. It, sequence and doomed are for Run alone.
	version  string
	sequence uint64
	// doomed: it may be gone any moment, so nothing is written to it.
	doomed bool

	// All below are guarded by Store.mu.
	//
	// records are all that the Secret has a version of.
	records []*record
	// needed is how many of these nobody else has so new, and size what they count.
	needed, size int
}

// hold makes a segment the holder of a record, as of the size now written.
func (g *segment) hold(r *record, size int) {
	r.holder, r.held = g, int32(size) //nolint:gosec // maxContent at most
	g.needed++
	g.size += size
}

// release takes a record from its holder, if it has one. Guarded by mu.
func (s *Store) release(r *record) {
	g := r.holder
	if g == nil {
		return
	}
	r.holder = nil
	g.needed--
	g.size -= int(r.held)
	if g.needed == 0 {
		s.sweepWithin(s.cfg.Delay)
	}
}

// vacate says that what a segment had is not stored there any more. Its Secret is gone,
// or has other records. Guarded by mu.
func (s *Store) vacate(g *segment) {
	gone := g.records
	g.records = nil
	for _, r := range gone {
		r.copies--
		if r.holder == g {
			s.release(r)
		}
		s.settle(r)
	}
}

// settle forgets what nobody needs of a deleted key: a tombstone that hides nothing, and
// the record once no segment has a version of it. Guarded by mu.
func (s *Store) settle(r *record) {
	if !r.deleted || r.queued || r.taken {
		return
	}
	if r.copies <= 1 {
		s.release(r)
	}
	if r.copies == 0 {
		delete(s.records, r.key)
	}
}

// drop forgets a segment. Guarded by mu.
func (s *Store) drop(g *segment) {
	s.vacate(g)
	s.segments = slices.DeleteFunc(s.segments, func(other *segment) bool { return other == g })
}

// empty returns a segment that nobody needs, nil if there is none. Guarded by mu.
func (s *Store) empty() *segment {
	for _, g := range s.segments {
		if g.needed == 0 {
			return g
		}
	}
	return nil
}

// sweepWithin has empty segments deleted after d, or before if that is planned. Guarded by
// mu.
func (s *Store) sweepWithin(d time.Duration) {
	if at := time.Now().Add(d); s.sweepAt.IsZero() || at.Before(s.sweepAt) {
		s.sweepAt = at
	}
}
