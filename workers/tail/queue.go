// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Bounds of what waits for one client.
const (
	maxFrames = 1000
	maxBytes  = 4 << 20
)

// A queue holds events for a client that reads more slowly than they come. When it is full,
// events are dropped until half of it is free, and one event then says how many.
type queue struct {
	script string
	ready  chan struct{} // has an element when there may be something to pop

	mu      sync.Mutex
	frames  [][]byte
	bytes   int
	dropped int // since the last event that said so
}

func newQueue(script string) *queue {
	return &queue{script: script, ready: make(chan struct{}, 1)}
}

// push adds an event, or drops it. It does not wait.
func (q *queue) push(frame []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full(len(frame)) {
		q.dropped++
		return
	}
	if q.dropped > 0 {
		q.add(q.note())
	}
	q.add(frame)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) full(size int) bool {
	if q.dropped > 0 { // otherwise each event that finds room would be followed by such a note
		return len(q.frames) > maxFrames/2 || q.bytes > maxBytes/2
	}
	return len(q.frames) >= maxFrames || q.bytes+size > maxBytes
}

func (q *queue) add(frame []byte) {
	q.frames = append(q.frames, frame)
	q.bytes += len(frame)
}

// note is the event that says how many were dropped.
func (q *queue) note() []byte {
	text := fmt.Sprintf("%d events were dropped: the connection is slow", q.dropped)
	if q.dropped == 1 {
		text = "1 event was dropped: the connection is slow"
	}
	q.dropped = 0
	return note(q.script, text, time.Now())
}

// pop waits for an event. It is nil when ctx has ended.
func (q *queue) pop(ctx context.Context) []byte {
	for ctx.Err() == nil {
		if frame := q.take(); frame != nil {
			return frame
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
	return nil
}

func (q *queue) take() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.frames) > 0:
		frame := q.frames[0]
		q.frames[0], q.frames = nil, q.frames[1:]
		q.bytes -= len(frame)
		return frame
	case q.dropped > 0:
		return q.note()
	default:
		return nil
	}
}
