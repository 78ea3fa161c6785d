// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "sync"

// slots counts the streams of one session. It never blocks: a stream gets its
// place at once or not at all.
type slots struct {
	cluster  string
	limit    int
	reserved int
	// changed is told the number of open streams, with mu held; nil is told
	// nothing. Set before use.
	changed func(open int)

	mu       sync.Mutex
	doors    map[string]int // open streams by door label
	open     int
	lasting  int           // open streams that a draining session waits for
	draining bool          // no new streams
	empty    chan struct{} // closed once draining and lasting is 0
}

func newSlots(cluster string, l Limits) *slots {
	return &slots{
		cluster:  cluster,
		limit:    l.Streams,
		reserved: l.ReservedStreams,
		doors:    map[string]int{},
		empty:    make(chan struct{}),
	}
}

// acquire takes a place for a stream to door. Errors wrap ErrDraining or are a
// *BusyError.
func (s *slots) acquire(door string) error {
	limit := s.limit
	if !reserved(door) {
		limit -= s.reserved
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return ErrDraining
	}
	if s.open >= limit {
		return &BusyError{Cluster: s.cluster, Door: door, Limit: limit}
	}
	s.count(1)
	s.doors[doorLabel(door)]++
	if !background(door) {
		s.lasting++
	}
	return nil
}

// release gives back the place of a stream to door.
func (s *slots) release(door string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(-1)
	s.doors[doorLabel(door)]--
	if background(door) {
		return
	}
	s.lasting--
	s.settle()
}

// count moves the number of open streams. mu is held.
func (s *slots) count(by int) {
	s.open += by
	if s.changed != nil {
		s.changed(s.open)
	}
}

// drain refuses new streams from now on. The channel is closed when none is
// left that the session must wait for.
func (s *slots) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		s.settle()
	}
	return s.empty
}

// settle closes empty when it is time to. mu is held.
func (s *slots) settle() {
	if !s.draining || s.lasting > 0 {
		return
	}
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

func (s *slots) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// used is the number of open streams.
func (s *slots) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// byDoor calls f with the number of open streams of each door seen so far.
func (s *slots) byDoor(f func(door string, n int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for door, n := range s.doors {
		f(door, n)
	}
}
