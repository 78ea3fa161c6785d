// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// fakeDisk is what survives processes.
type fakeDisk struct {
	mu   sync.Mutex
	data map[string][]byte // guarded by mu
}

func newFakeDisk() *fakeDisk { return &fakeDisk{data: map[string][]byte{}} }

// fakeRecords are those of one process: Records in which nothing survives a crash before a
// while has passed. What is urgent takes along all that waits.
type fakeRecords struct {
	disk *fakeDisk
	rand *rand.Rand

	// All below are guarded by disk.mu.
	killed bool
	memory map[string][]byte
	// dirty waits to be written, with whom it may concern.
	dirty map[string][]chan struct{}
	// due is when that begins; zero if nothing waits. writing is under way, nil if nothing
	// is.
	due     time.Time
	writing *fakeBatch
}

// fakeBatch is what becomes durable at once: values of keys, and no values of others.
type fakeBatch struct {
	waiting map[string][]chan struct{}
	values  map[string][]byte
}

// store makes a batch durable; d.mu is held.
func (d *fakeDisk) store(b *fakeBatch) {
	for key := range b.waiting {
		delete(d.data, key)
	}
	maps.Copy(d.data, b.values)
}

func (d *fakeDisk) open(r *rand.Rand) *fakeRecords {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &fakeRecords{disk: d, rand: r, memory: maps.Clone(d.data), dirty: map[string][]chan struct{}{}}
}

// Get implements Records.
func (r *fakeRecords) Get(key string) ([]byte, bool) {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	value, ok := r.memory[key]
	return value, ok
}

// Keys implements Records.
func (r *fakeRecords) Keys() []string {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	return slices.Sorted(maps.Keys(r.memory))
}

// Put implements Records.
func (r *fakeRecords) Put(key string, value []byte, urgent bool) (<-chan struct{}, error) {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	r.memory[key] = value
	done := make(chan struct{})
	r.dirty[key] = append(r.dirty[key], done)
	if urgent {
		r.schedule(0)
	} else {
		r.schedule(time.Second)
	}
	return done, nil
}

// Delete implements Records.
func (r *fakeRecords) Delete(key string) {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	delete(r.memory, key)
	r.dirty[key] = append(r.dirty[key], nil)
	r.schedule(time.Second)
}

// schedule has what is dirty written in some time, or earlier; disk.mu is held.
func (r *fakeRecords) schedule(in time.Duration) {
	at := time.Now().Add(in)
	if !r.due.IsZero() && !at.Before(r.due) {
		return
	}
	r.due = at
	time.AfterFunc(in, r.begin)
}

func (r *fakeRecords) begin() {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	if r.killed || r.writing != nil || r.due.IsZero() || time.Now().Before(r.due) {
		return
	}
	r.writing = &fakeBatch{waiting: r.dirty, values: map[string][]byte{}}
	for key := range r.dirty {
		if value, ok := r.memory[key]; ok {
			r.writing.values[key] = value
		}
	}
	r.dirty, r.due = map[string][]chan struct{}{}, time.Time{}
	time.AfterFunc(time.Duration(r.rand.Int64N(int64(20*time.Millisecond))+1), r.end)
}

func (r *fakeRecords) end() {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	if r.killed {
		return
	}
	r.disk.store(r.writing)
	for _, waiting := range r.writing.waiting {
		for _, done := range waiting {
			if done != nil {
				close(done)
			}
		}
	}
	r.writing = nil
	if !r.due.IsZero() {
		time.AfterFunc(max(0, time.Until(r.due)), r.begin)
	}
}

// kill has nothing become durable any more. What is being written may have been, or not.
func (r *fakeRecords) kill() {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	if !r.killed && r.writing != nil && r.rand.IntN(2) == 0 {
		r.disk.store(r.writing)
	}
	r.killed = true
}
