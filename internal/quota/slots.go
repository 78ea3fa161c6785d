// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import "sync"

// Slots counts what is in use, in total and by each holder. It never blocks: a request
// succeeds at once or fails. It is safe for concurrent use; a nil Slots has no bounds.
type Slots struct {
	total, each int64

	mu   sync.Mutex
	used int64            // guarded by mu
	by   map[string]int64 // guarded by mu, without holders of nothing
}

// NewSlots returns a Slots with so many for all holders together and for each.
func NewSlots(total, each int64) *Slots {
	return &Slots{total: total, each: each, by: map[string]int64{}}
}

// Take takes n for the holder, or returns false.
func (s *Slots) Take(holder string, n int64) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > s.total || s.by[holder]+n > s.each {
		return false
	}
	s.used += n
	s.by[holder] += n
	return true
}

// Give returns n of the holder.
func (s *Slots) Give(holder string, n int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.by[holder] -= n; s.by[holder] == 0 {
		delete(s.by, holder)
	}
}

// Used returns how many are in use, of all holders together; 0 for a nil Slots.
func (s *Slots) Used() int64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Each returns how many one holder may have; 0 for a nil Slots.
func (s *Slots) Each() int64 {
	if s == nil {
		return 0
	}
	return s.each
}

// Share is one slot of a holder. What names the kind of slot in errors.
type Share struct {
	Slots        *Slots
	Holder, What string
}

// TakeAll takes one slot for each share, or none: then full is the first share without a free
// slot. leave returns the slots; it may be called more than once.
func TakeAll(shares ...Share) (leave func(), full *Share) {
	give := func(shares []Share) {
		for _, s := range shares {
			s.Slots.Give(s.Holder, 1)
		}
	}
	for i, s := range shares {
		if !s.Slots.Take(s.Holder, 1) {
			give(shares[:i])
			return nil, &shares[i]
		}
	}
	return sync.OnceFunc(func() { give(shares) }), nil
}
