// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/quota"
)

// Bounds of what waits for one client.
const (
	maxFrames = 2000
	maxBytes  = 8 << 20
)

// Bounds of what waits for the clients of one account, and for all clients, in bytes.
const (
	accountFrames = 16 << 20
	allFrames     = 48 << 20
	// guaranteedFrames are an account's however much the others have.
	guaranteedFrames = 512 << 10
)

// A queue holds events for a slow client. The events of one cluster may fill half of it, so that a
// cluster that writes endlessly leaves room for the others: beyond that its events are dropped until
// three times as much is free as it has queued, and one event then reports how many were dropped.
type queue struct {
	script  string
	account *quota.Account
	ready   chan struct{} // has an element when there may be something to pop

	mu      sync.Mutex
	frames  []frame
	bytes   int
	sources map[string]*source // by cluster, "" is what the tail itself says
}

// A frame is an event of a source.
type frame struct {
	source  *source
	data    []byte
	charged int64 // of the account
}

// A source is what waits of one cluster.
type source struct {
	cluster       string
	frames, bytes int
	dropped       int // since the last event that said so
}

func newQueue(script string, account *quota.Account) *queue {
	return &queue{script: script, account: account, ready: make(chan struct{}, 1), sources: map[string]*source{}}
}

// push adds an event of a cluster, or drops it. It does not block.
func (q *queue) push(cluster string, data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.source(cluster)
	if q.isFull(s, len(data)) || q.account.Grow(int64(len(data))) != nil {
		s.dropped++
		return
	}
	if s.dropped > 0 {
		q.add(frame{source: s, data: q.newDroppedNote(s)})
	}
	q.add(frame{source: s, data: data, charged: int64(len(data))})
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// countDropped counts an event of a cluster that there was no memory for.
func (q *queue) countDropped(cluster string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.source(cluster).dropped++
	select {
	case q.ready <- struct{}{}: // where nothing else comes, it is said at once
	default:
	}
}

func (q *queue) source(cluster string) *source {
	s := q.sources[cluster]
	if s == nil {
		s = &source{cluster: cluster}
		q.sources[cluster] = s
	}
	return s
}

func (q *queue) isFull(s *source, size int) bool {
	frames, bytes := maxFrames-len(q.frames), maxBytes-q.bytes // that are free
	if s.dropped > 0 {                                         // otherwise each event that finds room would be followed by such a note
		return 3*s.frames > frames || 3*s.bytes > bytes
	}
	return s.frames >= frames || s.bytes+size > bytes
}

func (q *queue) add(f frame) {
	q.frames = append(q.frames, f)
	q.bytes += len(f.data)
	f.source.frames++
	f.source.bytes += len(f.data)
}

// newDroppedNote returns the event that reports how many events were dropped.
func (q *queue) newDroppedNote(s *source) []byte {
	events := fmt.Sprintf("%d events of cluster %s were", s.dropped, s.cluster)
	if s.dropped == 1 {
		events = fmt.Sprintf("1 event of cluster %s was", s.cluster)
	}
	s.dropped = 0
	return newNote(q.script, events+" dropped: the connection is slow, or there is no memory for more", time.Now())
}

// pop waits for an event. It is nil when ctx has ended.
func (q *queue) pop(ctx context.Context) []byte {
	for ctx.Err() == nil {
		if data := q.next(); data != nil {
			return data
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
	return nil
}

func (q *queue) next() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) > 0 {
		f := q.frames[0]
		q.frames[0], q.frames = frame{}, q.frames[1:]
		q.bytes -= len(f.data)
		f.source.frames--
		f.source.bytes -= len(f.data)
		q.account.Shrink(f.charged)
		return f.data
	}
	for _, s := range q.sources {
		if s.dropped > 0 {
			return q.newDroppedNote(s)
		}
	}
	return nil
}
