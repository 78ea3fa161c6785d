// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import "sync"

// shares counts what is in use, in all and by each holder. It never blocks: who
// asks gets it at once or not at all.
type shares struct {
	total, each int64

	mu   sync.Mutex
	used int64            // guarded by mu
	by   map[string]int64 // guarded by mu; holders of nothing are not in it
}

func newShares(total, each int64) *shares {
	return &shares{total: total, each: each, by: map[string]int64{}}
}

// take reports whether the holder got n more.
func (s *shares) take(holder string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > s.total || s.by[holder]+n > s.each {
		return false
	}
	s.used += n
	s.by[holder] += n
	return true
}

// give takes n back from the holder, who has as much.
func (s *shares) give(holder string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.by[holder] -= n; s.by[holder] == 0 {
		delete(s.by, holder)
	}
}
