// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"crypto/rand"
	"slices"
	"strings"
)

// batch is one write of one segment.
type batch struct {
	// target is the segment that is updated; nil: one is created, named name.
	target *segment
	name   string
	// taken are the records that are durable with it, as they were when it was made.
	taken []change
	// size is what these count.
	size int

	sequence uint64
	// written are those of taken that are in the content, in the order of their keys.
	written []change
	content []byte
	// version is that of the Secret after the write.
	version string
}

// nothing tells whether there is no need to write: what was taken is deleted, and no
// segment has a version of it.
func (b *batch) nothing() bool { return b.target == nil && len(b.written) == 0 }

// change is the state of a record in a batch.
type change struct {
	entry

	record *record
	done   chan struct{}
}

// next returns the batch to be written now, nil if there is none.
func (s *Store) next() *batch {
	s.mu.Lock()
	if s.flight == nil {
		s.flight = s.plan()
		s.render(s.flight)
	}
	b := s.flight
	s.mu.Unlock()
	if b != nil && b.content == nil && !b.nothing() {
		b.content = b.encode(s)
	}
	return b
}

// plan takes what is due into a batch, with all that folding adds. Guarded by mu.
func (s *Store) plan() *batch {
	b := &batch{}
	if s.takeQueue(b, &s.urgent) {
		s.takeQueue(b, &s.ready)
	}
	if len(b.taken) == 0 {
		return nil
	}
	for _, g := range s.foldable(b) {
		if b.target == nil && !g.doomed {
			b.target = g
		}
	}
	return b
}

// takeQueue returns false if there is no room for all of a queue. Guarded by mu.
func (s *Store) takeQueue(b *batch, queue *[]*record) (all bool) {
	for i, r := range *queue {
		if !r.queued {
			continue
		}
		if len(b.taken) > 0 && b.size+r.size() > maxFold {
			*queue = (*queue)[i:]
			return false
		}
		s.take(b, r)
	}
	*queue = nil
	return true
}

// take makes a record, as it is now, part of a batch. Guarded by mu.
func (s *Store) take(b *batch, r *record) {
	c := change{entry: entry{key: r.key, value: r.value, deleted: r.deleted}, record: r}
	if r.queued {
		c.done = r.done
	}
	b.taken = append(b.taken, c)
	b.size += r.size()
	r.queued, r.urgent, r.taken = false, false, true
	s.release(r)
}

// foldable takes all that is needed of small segments into a batch, and returns these, the
// smallest first. Guarded by mu.
func (s *Store) foldable(b *batch) []*segment {
	bySize := slices.SortedFunc(slices.Values(s.segments), func(x, y *segment) int {
		return cmp.Or(cmp.Compare(x.size, y.size), strings.Compare(x.name, y.name))
	})
	for i, g := range bySize {
		if g.needed == 0 {
			continue
		}
		needed := g.neededRecords()
		if g.size > b.size || b.size+sizeOf(needed) > maxFold {
			return bySize[:i]
		}
		for _, r := range needed {
			s.take(b, r)
		}
	}
	return bySize
}

func (g *segment) neededRecords() []*record {
	out := make([]*record, 0, g.needed)
	for _, r := range g.records {
		if r.holder == g {
			out = append(out, r)
		}
	}
	return out
}

func sizeOf(records []*record) (size int) {
	for _, r := range records {
		size += r.size()
	}
	return size
}

// render decides what of a batch is written. A deletion is if a Secret that this write
// does not replace has a version of the key. Guarded by mu.
func (s *Store) render(b *batch) {
	if b == nil {
		return
	}
	s.sequence++
	b.sequence, b.content, b.written = s.sequence, nil, nil
	replaced := map[*record]int32{}
	if b.target == nil {
		b.name = newName()
	} else {
		for _, r := range b.target.records {
			if r.deleted {
				replaced[r] = 1
			}
		}
	}
	for _, c := range b.taken {
		if !c.deleted || c.record.copies > replaced[c.record] {
			b.written = append(b.written, c)
		}
	}
	slices.SortFunc(b.written, func(x, y change) int { return strings.Compare(x.key, y.key) })
}

func newName() string { return namePrefix + strings.ToLower(rand.Text()) }

func (b *batch) encode(s *Store) []byte {
	entries := make([]entry, len(b.written))
	for i, c := range b.written {
		entries[i] = c.entry
	}
	return encode(s.zip, b.sequence, entries)
}

// commit records that a batch was written.
func (s *Store) commit(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := b.target
	if g == nil {
		g = &segment{name: b.name}
	} else {
		s.drop(g)
	}
	if !b.nothing() {
		s.segments = append(s.segments, g)
		g.version, g.sequence = b.version, b.sequence
		g.records = make([]*record, 0, len(b.written))
		for _, c := range b.written {
			c.record.copies++
			g.records = append(g.records, c.record)
			g.hold(c.record, entrySize(c.key, c.value))
		}
	}
	for _, c := range b.taken {
		c.record.taken = false
		s.conclude(c)
	}
	if s.empty() != nil {
		s.sweepWithin(s.cfg.Delay)
	}
	s.flight, s.err = nil, nil
}

// conclude tells who waits for a change that it is durable. Guarded by mu.
func (s *Store) conclude(c change) {
	if c.done != nil {
		close(c.done)
		if c.record.done == c.done {
			c.record.done = nil
		}
	}
	s.settle(c.record)
}
