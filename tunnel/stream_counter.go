// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "sync"

// streamCounter counts the streams of one session. It never blocks: a stream is
// admitted at once or not at all.
type streamCounter struct {
	cluster  string
	limit    int
	reserved int
	// onChange, if set, is called with the number of open streams, with mu held.
	onChange func(open int)

	mu         sync.Mutex
	byDoor     map[string]int // open streams by door label
	open       int
	foreground int           // open streams that a draining session waits for
	draining   bool          // no new streams
	drained    chan struct{} // closed once draining and lasting is 0
}

func newStreamCounter(cluster string, l Limits) *streamCounter {
	return &streamCounter{
		cluster:  cluster,
		limit:    l.Streams,
		reserved: l.ReservedStreams,
		byDoor:   map[string]int{},
		drained:  make(chan struct{}),
	}
}

// acquire admits a stream to door. Errors wrap ErrDraining or are a
// *BusyError.
func (s *streamCounter) acquire(door string) error {
	limit := s.limit
	if !usesReservedStreams(door) {
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
	s.add(1)
	s.byDoor[doorLabel(door)]++
	if !isBackground(door) {
		s.foreground++
	}
	return nil
}

// release ends a stream to door.
func (s *streamCounter) release(door string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(-1)
	s.byDoor[doorLabel(door)]--
	if isBackground(door) {
		return
	}
	s.foreground--
	s.closeIfDrained()
}

// add changes the number of open streams. mu is held.
func (s *streamCounter) add(by int) {
	s.open += by
	if s.onChange != nil {
		s.onChange(s.open)
	}
}

// drain refuses new streams from now on. The channel is closed when no foreground
// stream is left.
func (s *streamCounter) drain() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		s.closeIfDrained()
	}
	return s.drained
}

// closeIfDrained closes drained once no foreground stream is left. mu is held.
func (s *streamCounter) closeIfDrained() {
	if !s.draining || s.foreground > 0 {
		return
	}
	select {
	case <-s.drained:
	default:
		close(s.drained)
	}
}

func (s *streamCounter) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *streamCounter) openStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// eachDoor calls f with the number of open streams of each door seen so far.
func (s *streamCounter) eachDoor(f func(door string, n int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for door, n := range s.byDoor {
		f(door, n)
	}
}
