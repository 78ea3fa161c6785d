// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"bytes"
	"compress/gzip"
	"slices"
	"sync"
	"time"
)

// Store is a durable map. Its methods may be called from any goroutine; changes are stored
// while Run runs.
type Store struct {
	cfg  Config
	wake chan struct{}
	// closed is returned for values that are durable already.
	closed chan struct{}
	// unreadable is how many Secrets Open could not read.
	unreadable int
	// zip is used by Run alone.
	zip *gzip.Writer

	mu sync.Mutex
	// All below are guarded by mu.
	records  map[string]*record
	segments []*segment
	// sequence is the highest that was ever used.
	sequence uint64
	// urgent and delayed are queues of changed records, written in this order at writeAt;
	// zero if they are empty. They may contain records that are no longer queued.
	urgent, delayed []*record
	writeAt         time.Time
	// inFlight is the batch that is being written, nil if none is.
	inFlight *batch
	// deleteAt is when an empty segment is deleted, zero if there is none.
	deleteAt time.Time
	// err is the error of the last write.
	err error
}

// Get returns the latest value of a key, which may not be durable yet. It must not be
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

// Keys returns all keys that have a value, sorted.
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

// Put sets a value, which the caller must not change afterwards. The returned channel is
// closed once this value, or a later state of the key, is durable.
//
// An urgent value is written at once, or after the write that is under way, and takes all
// queued changes along. Others are written within Config.Delay. The error is ErrTooLarge;
// nothing has changed then.
func (s *Store) Put(key string, value []byte, urgent bool) (durable <-chan struct{}, err error) {
	if err := validateSize(key, value); err != nil {
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
		if !r.queued || r.durable == nil {
			r.durable = make(chan struct{})
		}
		r.value, r.deleted = value, false
	}
	if changed || r.queued {
		s.enqueue(r, urgent)
	}
	if r.durable == nil {
		return s.closed, nil
	}
	return r.durable, nil
}

// Delete removes a key. That is durable within Config.Delay, or with the next write.
func (s *Store) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil || r.deleted {
		return
	}
	r.value, r.deleted = nil, true
	if !r.queued {
		r.durable = nil // it belongs to the batch in flight, which closes it
	}
	s.enqueue(r, false)
}

// enqueue queues a changed record. s.mu is held.
func (s *Store) enqueue(r *record, urgent bool) {
	at := time.Now()
	if urgent && !r.urgent {
		s.urgent = append(s.urgent, r)
	}
	if !urgent {
		at = at.Add(s.cfg.Delay)
		if !r.queued {
			s.delayed = append(s.delayed, r)
		}
	}
	r.queued, r.urgent = true, r.urgent || urgent
	s.writeAt = earliest(s.writeAt, at)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// earliest returns the earlier time; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
