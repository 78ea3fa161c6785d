// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"bytes"
	"compress/gzip"
	"slices"
	"sync"
	"time"
)

// Store keeps records. Its methods may be called from any goroutine; what they change is
// stored while Run runs.
type Store struct {
	cfg  Config
	wake chan struct{}
	// durable is closed.
	durable chan struct{}
	// unreadable is how many Secrets Open could not read.
	unreadable int

	// zip is for Run alone.
	zip *gzip.Writer

	mu sync.Mutex
	// All below are guarded by mu.
	records  map[string]*record
	segments []*segment
	// sequence is the highest that was ever used.
	sequence uint64
	// urgent, ready and lazy are the records that changed, in the order in which they are
	// written: the first two now, lazy at lazyAt, zero if it is empty. They may have some
	// that are not queued any more.
	urgent, ready, lazy []*record
	lazyAt              time.Time
	// flight is the batch that is being written, nil if none is.
	flight *batch
	// sweepAt is when empty segments are deleted, zero if there are none.
	sweepAt time.Time
	err     error
}

// Get returns the latest value of a key, which may not be durable yet. It is not to be
// changed.
func (s *Store) Get(key string) (value []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil || r.deleted {
		return nil, false
	}
	return r.value, true
}

// Keys returns all that have a value, sorted.
func (s *Store) Keys() []string {
	s.mu.Lock()
	keys := make([]string, 0, len(s.records))
	for key, r := range s.records {
		if !r.deleted {
			keys = append(keys, key)
		}
	}
	s.mu.Unlock()
	slices.Sort(keys)
	return keys
}

// Put keeps a value, which the caller does not change any more. The channel is closed once
// it, or a later state of the same key, is durable; at once if it was so already.
//
// What is urgent is written at once, or as soon as the write under way has ended, and all
// that waits goes along. The rest is written within Config.Delay. The error is
// ErrTooLarge, and the store is as it was then.
func (s *Store) Put(key string, value []byte, urgent bool) (durable <-chan struct{}, err error) {
	if err := fits(key, value); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil {
		r = &record{key: key, deleted: true}
		s.records[key] = r
	}
	changed := r.deleted || !bytes.Equal(r.value, value)
	if changed {
		if !r.queued || r.done == nil {
			r.done = make(chan struct{})
		}
		r.value, r.deleted = value, false
	}
	if changed || r.queued {
		s.queue(r, urgent)
	}
	if r.done == nil {
		return s.durable, nil
	}
	return r.done, nil
}

// Delete forgets a key. That is durable within Config.Delay, or with the next write.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil || r.deleted {
		return
	}
	r.value, r.deleted = nil, true
	if !r.queued {
		r.done = nil // that is of the value which is being written, and closed with it
	}
	s.queue(r, false)
}

// Err says why the last write failed; nil once it has succeeded.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Unreadable is how many Secrets with the label Open could not read. They are left alone,
// and the log has their names.
func (s *Store) Unreadable() int { return s.unreadable }

// queue has a change written. Guarded by mu.
func (s *Store) queue(r *record, urgent bool) {
	if !r.queued && !urgent {
		s.lazy = append(s.lazy, r)
		if s.lazyAt.IsZero() {
			s.lazyAt = time.Now().Add(s.cfg.Delay)
		}
	}
	if urgent && !r.urgent {
		s.urgent = append(s.urgent, r)
		r.urgent = true
	}
	r.queued = true
	if urgent {
		s.hurry()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// hurry makes ready what could wait. Guarded by mu.
func (s *Store) hurry() {
	s.ready = append(s.ready, s.lazy...)
	s.lazy, s.lazyAt = nil, time.Time{}
}
