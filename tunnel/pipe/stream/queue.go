// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"os"
	"sync"
)

// chunkOverhead is what a chunk costs beside its bytes, rounded up, so that a
// peer who sends single bytes fills the queue and not the memory.
const chunkOverhead = 64

// queue is a FIFO of bytes, bounded by what it holds. Use newQueue.
type queue struct {
	limit int

	// data and room wake one waiter each; a waiter who leaves something behind
	// wakes the next.
	data, room chan struct{}
	// ended is closed when err is set.
	ended chan struct{}

	mu     sync.Mutex
	chunks [][]byte
	head   int // index in chunks of the first that is left
	size   int // bytes and overhead of what is left
	err    error
}

func newQueue(limit int) *queue {
	return &queue{
		limit: limit,
		data:  make(chan struct{}, 1),
		room:  make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
}

// push appends a chunk, which the queue then owns, and waits while it is full.
// A queue that is empty takes a chunk of any size.
func (q *queue) push(chunk []byte, expired <-chan struct{}) error {
	for {
		if isClosed(expired) {
			return os.ErrDeadlineExceeded
		}
		if pushed, err := q.tryPush(chunk); pushed || err != nil {
			return err
		}
		select {
		case <-q.room:
		case <-q.ended:
		case <-expired:
		}
	}
}

func (q *queue) tryPush(chunk []byte) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return false, q.err
	}
	cost := len(chunk) + chunkOverhead
	if q.size > 0 && q.size+cost > q.limit {
		return false, nil
	}
	q.chunks = append(q.chunks, chunk)
	q.size += cost
	wake(q.data)
	if q.size < q.limit {
		wake(q.room)
	}
	return true, nil
}

// read copies what there is into p and waits while there is nothing. After
// end it returns what is left, then the error.
func (q *queue) read(p []byte, expired <-chan struct{}) (int, error) {
	for {
		if isClosed(expired) {
			return 0, os.ErrDeadlineExceeded
		}
		if n, err := q.tryRead(p); n > 0 || err != nil {
			return n, err
		}
		select {
		case <-q.data:
		case <-q.ended:
		case <-expired:
		}
	}
}

func (q *queue) tryRead(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(p) && q.head < len(q.chunks) {
		chunk := q.chunks[q.head]
		m := copy(p[n:], chunk)
		n += m
		q.size -= m
		if m < len(chunk) {
			q.chunks[q.head] = chunk[m:]
			break
		}
		q.drop()
	}
	if n == 0 && q.head == len(q.chunks) {
		return 0, q.err
	}
	q.taken()
	return n, nil
}

// next returns what there is, at most limit bytes of it unless the first chunk
// alone is larger, and waits while there is nothing. After end it returns what
// is left, then the error.
func (q *queue) next(limit int) ([]byte, error) {
	for {
		if chunk, err := q.tryNext(limit); chunk != nil || err != nil {
			return chunk, err
		}
		select {
		case <-q.data:
		case <-q.ended:
		}
	}
}

func (q *queue) tryNext(limit int) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.chunks) {
		return nil, q.err
	}
	chunk := q.first()
	// A transport that is behind gets many small chunks as one.
	for q.head < len(q.chunks) && len(chunk)+len(q.chunks[q.head]) <= limit {
		chunk = append(chunk, q.first()...)
	}
	q.taken()
	return chunk, nil
}

// first removes the first chunk.
func (q *queue) first() []byte {
	chunk := q.chunks[q.head]
	q.size -= len(chunk)
	q.drop()
	return chunk
}

// drop forgets the first chunk; its bytes are subtracted already.
func (q *queue) drop() {
	q.chunks[q.head] = nil
	q.size -= chunkOverhead
	q.head++
	if q.head == len(q.chunks) {
		q.chunks, q.head = q.chunks[:0], 0
		return
	}
	// Half of the array is empty: move the rest to the front, so that a queue
	// that never runs dry does not grow.
	if q.head > 64 && q.head*2 > len(q.chunks) {
		n := copy(q.chunks, q.chunks[q.head:])
		clear(q.chunks[n:])
		q.chunks, q.head = q.chunks[:n], 0
	}
}

func (q *queue) taken() {
	wake(q.room)
	if q.head < len(q.chunks) {
		wake(q.data)
	}
}

// end lets nothing more in; what is left can be read if keep is set. The first
// error stays.
func (q *queue) end(err error, keep bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !keep {
		q.chunks, q.head, q.size = nil, 0, 0
	}
	if q.err == nil {
		q.err = err
		close(q.ended)
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
