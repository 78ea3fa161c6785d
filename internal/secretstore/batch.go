// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"
	"time"
)

// batch is one write of one segment.
type batch struct {
	// target is the segment that is written; it may be a new one.
	target *segment
	// changes are the records that are durable with the batch, as they were when it was
	// made, and size is their size.
	changes []change
	size    int

	sequence uint64
	// written are the changes that the content has, sorted by key.
	written []change
	content []byte
}

// change is the state of a record in a batch.
type change struct {
	entry

	record  *record
	durable chan struct{}
}

// isNoop reports whether there is nothing to write: all changes are deletions, and no segment
// contains a version of them.
func (b *batch) isNoop() bool { return b.target.version == "" && len(b.written) == 0 }

// nextBatch returns the batch to write now, nil if there is none.
func (s *Store) nextBatch() *batch {
	s.mu.Lock()
	if s.inFlight == nil {
		s.inFlight = s.newBatch()
	}
	b := s.inFlight
	s.mu.Unlock()
	if b != nil && b.content == nil {
		entries := make([]entry, len(b.written))
		for i, c := range b.written {
			entries[i] = c.entry
		}
		b.content = encode(s.zip, content{Sequence: b.sequence, Entries: entries})
	}
	return b
}

// newBatch moves queued records into a batch, and compacts small segments. s.mu is held.
func (s *Store) newBatch() *batch {
	if s.writeAt.IsZero() || time.Now().Before(s.writeAt) {
		return nil
	}
	b := &batch{}
	if s.addQueue(b, &s.urgent) && s.addQueue(b, &s.delayed) {
		s.writeAt = time.Time{}
	}
	if len(b.changes) == 0 {
		return nil
	}
	if small := s.addSmallSegments(b); len(small) > 0 {
		b.target = small[0]
	} else {
		b.target = &segment{name: s.newName()}
	}
	s.sequence++
	b.sequence = s.sequence
	b.written = b.writtenChanges()
	return b
}

func (s *Store) newName() string {
	return "spokelet-" + s.cfg.Name + "-" + strings.ToLower(rand.Text())
}

// addQueue adds the records of a queue; it returns false if there is no room for all. s.mu
// is held.
func (s *Store) addQueue(b *batch, queue *[]*record) (all bool) {
	for i, r := range *queue {
		if !r.queued {
			continue
		}
		if len(b.changes) > 0 && b.size+r.size() > maxSegment {
			*queue = (*queue)[i:]
			return false
		}
		s.addRecord(b, r)
	}
	*queue = nil
	return true
}

// addRecord adds a record as it is now. s.mu is held.
func (s *Store) addRecord(b *batch, r *record) {
	c := change{entry: entry{Key: r.key, Value: r.value, Deleted: r.deleted}, record: r}
	if r.queued {
		c.durable = r.durable
	}
	b.changes = append(b.changes, c)
	b.size += r.size()
	r.queued, r.urgent, r.inFlight = false, false, true
	s.detach(r)
}

// addSmallSegments adds the live records of small segments, and returns these segments, the
// smallest first. s.mu is held.
func (s *Store) addSmallSegments(b *batch) []*segment {
	bySize := slices.SortedFunc(slices.Values(s.segments), func(x, y *segment) int {
		return cmp.Or(cmp.Compare(x.liveSize, y.liveSize), strings.Compare(x.name, y.name))
	})
	for i, g := range bySize {
		if g.live == 0 {
			continue
		}
		live, size := g.liveRecords()
		if g.liveSize > b.size || b.size+size > maxSegment {
			return bySize[:i]
		}
		for _, r := range live {
			s.addRecord(b, r)
		}
	}
	return bySize
}

// writtenChanges leaves out deletions of keys that only the target contains, if any segment
// does. Store.mu is held.
func (b *batch) writtenChanges() []change {
	replaced := map[*record]int32{}
	for _, r := range b.target.records {
		replaced[r] = 1
	}
	written := slices.DeleteFunc(slices.Clone(b.changes), func(c change) bool {
		return c.Deleted && c.record.copies <= replaced[c.record]
	})
	slices.SortFunc(written, func(x, y change) int { return strings.Compare(x.Key, y.Key) })
	return written
}

// commit records that a batch is stored.
func (s *Store) commit(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := b.target
	s.removeSegment(g)
	if g.version != "" {
		s.segments = append(s.segments, g)
		g.sequence, g.records = b.sequence, make([]*record, 0, len(b.written))
		for _, c := range b.written {
			c.record.copies++
			g.records = append(g.records, c.record)
			g.attach(c.record, entrySize(c.Key, c.Value))
		}
	}
	for _, c := range b.changes {
		c.record.inFlight = false
		if c.durable != nil {
			close(c.durable)
		}
		if c.record.durable == c.durable {
			c.record.durable = nil
		}
		s.prune(c.record)
	}
	s.scheduleDeletion(s.cfg.Delay)
	s.inFlight, s.err = nil, nil
}
